/* The backend "vta": operands live in simulated DRAM, kernels are external code (docs/vta.md).
 *
 * The hardware is what the first module was made for; a module for another is refused. Everything
 * runs at once: nothing is queued. */
#include <string.h>

#include "alloc.h"
#include "msgpack.h"
#include "vta.h"

enum { DEVICES = 256 }; /* as many as anybody may want: each is a simulator of its own */

static const nvm_device_vtable vtable;

static nvm_vta_device *vta_of(nvm_device *device) { return (nvm_vta_device *)device; }

static nvm_status vta_open(int32_t ordinal, nvm_device **out_device) {
  if (ordinal < 0 || ordinal >= DEVICES)
    NVM_FAIL(NVM_DEVICE_ERROR, "vta: there are devices 0 to %d, not %d", DEVICES - 1, ordinal);
  nvm_vta_device *self = nvm_calloc(sizeof *self);
  if (!self) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta device");
  self->base.vtable = &vtable;
  nvm_status status = nvm_vta_dram_open(&self->dram);
  if (status != NVM_OK) {
    nvm_free(self);
    return status;
  }
  *out_device = &self->base;
  return NVM_OK;
}

static void vta_close(nvm_device *device) {
  nvm_vta_device *self = vta_of(device);
  nvm_vta_sim_destroy(self->sim);
  nvm_vta_dram_close(&self->dram);
  nvm_free(self->cache);
  nvm_free(self);
}

/* --- memory ----------------------------------------------------------------------------------- */

static nvm_status vta_alloc(nvm_device *device, size_t size, size_t alignment, void **out_memory) {
  uint64_t begin;
  NVM_TRY(nvm_vta_dram_alloc(&vta_of(device)->dram, size, alignment, &begin));
  *out_memory = (void *)(uintptr_t)(NVM_VTA_ADDRESS + begin);
  return NVM_OK;
}

static void vta_free(nvm_device *device, void *memory, size_t size) {
  (void)size;
  nvm_vta_dram_free(&vta_of(device)->dram, (uint64_t)(uintptr_t)memory - NVM_VTA_ADDRESS);
}

/* The host's view of size > 0 bytes; NULL if they are not in DRAM. */
static uint8_t *view(nvm_device *device, const void *memory, size_t offset, size_t size) {
  uint64_t begin = (uint64_t)(uintptr_t)memory - NVM_VTA_ADDRESS + offset;
  if (begin > NVM_VTA_DRAM_BYTES || size > NVM_VTA_DRAM_BYTES - begin) return NULL;
  return vta_of(device)->dram.memory + begin;
}

static nvm_status copy(uint8_t *to, const uint8_t *from, size_t size) {
  if (!size) return NVM_OK;
  if (!to || !from)
    NVM_FAIL(NVM_DEVICE_ERROR, "vta: a copy of %zu bytes outside of its DRAM", size);
  memcpy(to, from, size);
  return NVM_OK;
}

static nvm_status vta_copy_in(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                              size_t size) {
  return copy(view(device, dst, dst_offset, size), src, size);
}

static nvm_status vta_copy_out(nvm_device *device, void *dst, const void *src, size_t src_offset,
                               size_t size) {
  return copy(dst, view(device, src, src_offset, size), size);
}

static nvm_status vta_copy_within(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                                  size_t src_offset, size_t size) {
  return copy(view(device, dst, dst_offset, size), view(device, src, src_offset, size), size);
}

static nvm_status vta_sync(nvm_device *device) {
  (void)device;
  return NVM_OK;
}

/* --- modules ---------------------------------------------------------------------------------- */

typedef struct vta_module {
  nvm_vta_device *device;
  uint32_t n_codes;
  nvm_vta_code codes[];
} vta_module;

/* The first program says what the hardware is. */
static nvm_status same_hardware(const nvm_vta_config *one, const nvm_vta_config *other) {
  const uint32_t *have = (const uint32_t *)one, *want = (const uint32_t *)other;
  for (size_t i = 0; i < sizeof *one / sizeof *have; i++)
    if (have[i] != want[i])
      NVM_FAIL(NVM_INVALID_EXECUTABLE,
               "vta: kernels of one file are for different hardware: number %zu of the "
               "configuration is %u and %u",
               i, have[i], want[i]);
  return NVM_OK;
}

/* The loader has checked the map and that there are such kernels. */
static nvm_status vta_check_code(const nvm_device_section *section,
                                 const nvm_device_kernels *kernels) {
  if (section->kind != NVM_SECTION_EXTERNAL) return NVM_OK; /* not for this backend */
  nvm_mp mp;
  uint32_t count = 0, index = 0;
  nvm_vta_config config;
  nvm_mp_init(&mp, section->code, section->size);
  NVM_TRY(nvm_mp_map(&mp, "kernels", &count));
  for (uint32_t i = 0; i < count; i++) {
    const uint8_t *blob = NULL;
    const char *name = NULL;
    size_t size = 0;
    NVM_TRY(nvm_mp_u32(&mp, "kernel", UINT32_MAX, &index));
    NVM_TRY(nvm_mp_bin(&mp, "code", &blob, &size));
    const nvm_signature *signature = kernels->find(kernels->program, index, &name);
    if (!signature) NVM_FAIL(NVM_INVALID_EXECUTABLE, "vta: there is no kernel %u", index);
    nvm_vta_program program;
    NVM_TRY(nvm_vta_program_read(blob, size, signature, &program));
    if (i == 0) config = program.config;
    const nvm_status status = same_hardware(&config, &program.config);
    nvm_vta_program_free(&program);
    NVM_TRY(status);
  }
  return NVM_OK;
}

/* The section is a map: kernel index -> blob, each read when its kernel is asked for. */
static nvm_status vta_load_module(nvm_device *device, const nvm_device_section *section,
                                  void **out_module) {
  if (section->kind != NVM_SECTION_EXTERNAL)
    NVM_FAIL(NVM_UNSUPPORTED, "vta runs external code, not sections of kind %u", section->kind);
  nvm_mp mp;
  uint32_t count;
  nvm_mp_init(&mp, section->code, section->size);
  mp.part = "external code for vta";
  NVM_TRY(nvm_mp_map(&mp, "kernels", &count));
  vta_module *module = nvm_calloc(sizeof *module + count * sizeof *module->codes);
  if (!module) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta module");
  module->device = vta_of(device);
  module->n_codes = count;
  nvm_status status = NVM_OK;
  int64_t index = -1;
  for (uint32_t i = 0; i < count && status == NVM_OK; i++) {
    nvm_vta_code *code = &module->codes[i];
    status = nvm_mp_int(&mp, "kernel, ascending", index + 1, UINT32_MAX, &index);
    code->index = (uint32_t)index;
    if (status == NVM_OK) status = nvm_mp_bin(&mp, "code", &code->blob, &code->blob_size);
  }
  if (status != NVM_OK) {
    nvm_free(module);
    return status;
  }
  *out_module = module;
  return NVM_OK;
}

static void forget(nvm_vta_device *device, nvm_vta_code *code, uint32_t n_micro_kernels) {
  for (uint32_t i = 0; i < n_micro_kernels; i++)
    nvm_vta_cache_drop(device, code->program.micro_kernels[i].id);
  if (code->program.n_constant_bytes) nvm_vta_dram_free(&device->dram, code->constants);
  nvm_vta_program_free(&code->program);
}

static void vta_unload_module(nvm_device *device, void *module) {
  vta_module *self = module;
  for (uint32_t i = 0; i < self->n_codes; i++)
    if (self->codes[i].ready)
      forget(vta_of(device), &self->codes[i], self->codes[i].program.n_micro_kernels);
  nvm_free(self);
}

static nvm_status configure(nvm_vta_device *device, const nvm_vta_config *config) {
  if (!device->sim) {
    NVM_TRY(nvm_vta_sim_create(config, device->dram.memory, NVM_VTA_DRAM_BYTES, &device->sim));
    device->config = *config;
    return NVM_OK;
  }
  return same_hardware(&device->config, config);
}

/* Its constants and micro-kernels into DRAM. */
static nvm_status upload(nvm_vta_device *device, nvm_vta_code *code) {
  nvm_vta_program *program = &code->program;
  if (program->n_constant_bytes) {
    NVM_TRY(nvm_vta_dram_alloc(&device->dram, program->n_constant_bytes, 4096, &code->constants));
    memcpy(device->dram.memory + code->constants, program->constants, program->n_constant_bytes);
  }
  for (uint32_t i = 0; i < program->n_micro_kernels; i++) {
    nvm_vta_micro_kernel *kernel = &program->micro_kernels[i];
    nvm_status status = nvm_vta_cache_add(device, kernel->words, kernel->count, &kernel->id);
    if (status == NVM_OK) continue;
    for (uint32_t k = 0; k < i; k++) nvm_vta_cache_drop(device, program->micro_kernels[k].id);
    if (program->n_constant_bytes) nvm_vta_dram_free(&device->dram, code->constants);
    return status;
  }
  return NVM_OK;
}

static nvm_vta_code *find_code(vta_module *module, uint32_t index) {
  uint32_t low = 0, high = module->n_codes;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (module->codes[middle].index < index)
      low = middle + 1;
    else
      high = middle;
  }
  return low < module->n_codes && module->codes[low].index == index ? &module->codes[low] : NULL;
}

static nvm_status vta_find_kernel(nvm_device *device, void *module, uint32_t index,
                                  const char *name, const nvm_signature *signature,
                                  const void **out_code) {
  nvm_vta_code *code = find_code(module, index);
  if (!code) NVM_FAIL(NVM_UNSUPPORTED, "vta: kernel %s has no code for it", name);
  if (!code->ready) {
    NVM_TRY(nvm_vta_program_read(code->blob, code->blob_size, signature, &code->program));
    nvm_status status = configure(vta_of(device), &code->program.config);
    if (status == NVM_OK) status = upload(vta_of(device), code);
    if (status != NVM_OK) {
      nvm_vta_program_free(&code->program);
      return status;
    }
    code->signature = signature;
    code->ready = 1;
  }
  *out_code = code;
  return NVM_OK;
}

static nvm_status vta_launch(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                             const void *code, void *const *bufs, int64_t *dims) {
  (void)fn;
  return nvm_vta_launch(vta_of(device), ctx, code, bufs, dims);
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "vta",
                                         .host_accessible = 0,
                                         .host_code = 0,
                                         .dl_device_type = 12, /* DLPack: kDLExtDev */
                                         .open = vta_open,
                                         .close = vta_close,
                                         .alloc = vta_alloc,
                                         .free = vta_free,
                                         .copy_from_host = vta_copy_in,
                                         .copy_to_host = vta_copy_out,
                                         .copy_within = vta_copy_within,
                                         .sync = vta_sync,
                                         .load_module = vta_load_module,
                                         .unload_module = vta_unload_module,
                                         .find_kernel = vta_find_kernel,
                                         .launch = vta_launch,
                                         .check_code = vta_check_code};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_vta;
const nvm_device_vtable *const nvm_device_vta = &vtable;
