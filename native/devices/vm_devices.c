/* Devices of a VM. See vm_devices.h. */
#include "vm_devices.h"

#include <stdarg.h>
#include <stdio.h>

#include "code_sections.h"
#include "copy.h"
#include "log.h"

#define UPLOAD_SLACK ((size_t)16 << 20)

/* --- names ------------------------------------------------------------------------------------ */

static const char *behind_comma(const char *list) {
  const char *comma = strchr(list, ',');
  return comma ? comma + 1 : NULL;
}

static int names(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (; list; list = behind_comma(list))
    if (strncmp(list, name, length) == 0 && (list[length] == 0 || list[length] == ',')) return 1;
  return 0;
}

/* --- why a backend is not taken --------------------------------------------------------------- */

typedef struct reasons {
  char text[1024];
  size_t used;
} reasons;

__attribute__((format(printf, 2, 3))) static void add(reasons *r, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsnprintf(r->text + r->used, sizeof r->text - r->used, format, list);
  va_end(list);
  if (n > 0) r->used += (size_t)n;
  if (r->used > sizeof r->text - 1) r->used = sizeof r->text - 1;
}

/* Of the last error; a missing or unfit device is no error yet, anything else is. */
static nvm_status note(reasons *r, nvm_status status) {
  if (status != NVM_DEVICE_ERROR && status != NVM_UNSUPPORTED) return status;
  add(r, "; %s", nvm_last_error()->message);
  return NVM_OK;
}

/* --- code ------------------------------------------------------------------------------------- */

/* The sections of one kind for a device: the first that it takes. */
static nvm_status load_module(const nvm_program *program, nvm_pool *pool, uint32_t kind,
                              reasons *r) {
  const nvm_device_vtable *vtable = pool->device->vtable;
  void **module = &pool->modules[kind == NVM_SECTION_DEVICE];
  if (!vtable->load_module) return NVM_OK;
  for (uint32_t i = 3; i < program->n_sections && !*module; i++) {
    const nvm_section *section = &program->sections[i];
    if (section->kind != kind || !nvm_device_is_target(vtable, section->target)) continue;
    const nvm_device_section given = {kind, section->target, section->data, section->size};
    const nvm_status status = vtable->load_module(pool->device, &given, module);
    if (status != NVM_OK) NVM_TRY(note(r, status));
  }
  return NVM_OK;
}

static nvm_status find_kernels(const nvm_program *program, nvm_pool *pool, const void **code) {
  const nvm_device_vtable *vtable = pool->device->vtable;
  for (uint32_t k = 0; k < program->n_kernels; k++) {
    const nvm_kernel *kernel = &program->kernels[k];
    for (int m = 0; m < 2 && !code[k]; m++) {
      if (!pool->modules[m]) continue;
      const nvm_status status = vtable->find_kernel(pool->device, pool->modules[m], k, kernel->name,
                                                    &kernel->signature, &code[k]);
      if (status != NVM_OK && status != NVM_UNSUPPORTED) return status;
    }
  }
  return NVM_OK;
}

static void unload(nvm_pool *pool, int owns_code) {
  for (int m = 0; m < 2; m++) {
    if (pool->modules[m]) pool->device->vtable->unload_module(pool->device, pool->modules[m]);
    pool->modules[m] = NULL;
  }
  if (owns_code) nvm_free((void *)(uintptr_t)pool->code);
  pool->code = NULL;
}

static nvm_status code_table(const nvm_program *program, const void ***out_code) {
  *out_code = nvm_calloc((program->n_kernels + 1u) * sizeof **out_code);
  if (!*out_code) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a table of code");
  return NVM_OK;
}

/* Device code for an opened device that needs some. Leaves pool->code NULL if there is none. */
static nvm_status load_code(const nvm_program *program, nvm_pool *pool, reasons *r) {
  const size_t before = r->used;
  NVM_TRY(load_module(program, pool, NVM_SECTION_EXTERNAL, r));
  NVM_TRY(load_module(program, pool, NVM_SECTION_DEVICE, r));
  if (!pool->modules[0] && !pool->modules[1]) {
    if (r->used == before) add(r, "; %s: the file has no code for it", pool->device->vtable->name);
    return NVM_OK;
  }
  const void **code = NULL;
  NVM_TRY(code_table(program, &code));
  pool->code = code;
  return find_kernels(program, pool, code);
}

/* --- external code on the host ---------------------------------------------------------------- */

static nvm_status make_external(const nvm_kernel *kernel, const nvm_external_runtime *runtime,
                                const void *blob, size_t size, const void **code) {
  nvm_external *made = nvm_malloc(sizeof *made);
  if (!made) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for external code");
  *made = (nvm_external){.runtime = runtime};
  nvm_error_clear(); /* what is recorded then is the runtime's own */
  const nvm_status status = runtime->create(runtime->context, blob, size, kernel->name,
                                            &kernel->signature, &made->instance);
  if (status != NVM_OK) {
    nvm_free(made);
    if (status == NVM_INTERRUPTED || nvm_last_error()->code == status) return status;
    const int known = status > NVM_OK && status < NVM_INTERRUPTED;
    NVM_FAIL(known ? status : NVM_KERNEL_ERROR,
             "the runtime \"%s\" refuses kernel %s with status %d, unexplained", runtime->name,
             kernel->name, status);
  }
  *code = made;
  return NVM_OK;
}

/* A missing or unfit runtime is no error if the caller does without and the kernel has kernel IR.
 */
static nvm_status forgive(nvm_status status, int fallback, const nvm_kernel *kernel) {
  const int lacks = status == NVM_DEVICE_ERROR || status == NVM_UNSUPPORTED;
  return lacks && fallback && kernel->kind == 0 ? NVM_OK : status;
}

static nvm_status make_externals(const nvm_program *program, const nvm_section *section,
                                 int fallback, const void **code) {
  const nvm_external_runtime *runtime = NULL;
  NVM_TRY(nvm_external_find(section->target, fallback, &runtime));
  if (!runtime) return NVM_OK;
  nvm_mp mp;
  uint32_t count = 0, k = 0;
  const uint8_t *blob = NULL;
  size_t size = 0;
  NVM_TRY(nvm_external_begin(&mp, section, &count));
  for (uint32_t i = 0; i < count; i++) {
    NVM_TRY(nvm_external_next(&mp, program, &k, &blob, &size));
    const nvm_kernel *kernel = &program->kernels[k];
    if (!code[k])
      NVM_TRY(forgive(make_external(kernel, runtime, blob, size, &code[k]), fallback, kernel));
  }
  return NVM_OK;
}

static int is_for_device(const nvm_program *program, const nvm_section *section) {
  for (uint32_t i = 1; i < program->n_devices; i++)
    if (names(program->devices[i], section->target)) return 1;
  return 0;
}

/* One table, of pool 0, for all devices that run host functions. */
static nvm_status open_externals(const nvm_program *program, nvm_heap *heap, int fallback) {
  const void **code = NULL;
  for (uint32_t i = 3; i < program->n_sections; i++) {
    const nvm_section *section = &program->sections[i];
    if (section->kind != NVM_SECTION_EXTERNAL || program->version < 2 ||
        (program->flags & NVM_LOAD_NO_NATIVE) || is_for_device(program, section))
      continue;
    if (!code) NVM_TRY(code_table(program, &code));
    heap->pools[0].code = code;
    NVM_TRY(make_externals(program, section, fallback, code));
  }
  for (uint32_t i = 1; i < heap->n_pools; i++)
    if (heap->pools[i].device->vtable->host_code) heap->pools[i].code = code;
  return NVM_OK;
}

/* A kernel that is external code alone must have it somewhere. */
static nvm_status check_externals(const nvm_program *program, const nvm_heap *heap) {
  for (uint32_t k = 0; k < program->n_kernels; k++) {
    int found = program->kernels[k].kind != 2;
    for (uint32_t i = 0; i < heap->n_pools && !found; i++)
      found = heap->pools[i].code && heap->pools[i].code[k];
    if (found) continue;
    reasons r = {.used = 0};
    for (uint32_t i = 3; i < program->n_sections; i++)
      if (program->sections[i].kind == NVM_SECTION_EXTERNAL)
        add(&r, "%s %s", r.used ? "," : "", program->sections[i].target);
    const char *why = program->flags & NVM_LOAD_NO_NATIVE
                          ? "and native=False asks for a run without machine code"
                          : "and none of these is used here";
    NVM_FAIL(NVM_DEVICE_ERROR, "kernel %s is external code alone, for%s, %s",
             program->kernels[k].name, r.text, why);
  }
  return NVM_OK;
}

static void close_externals(nvm_heap *heap, uint32_t n_kernels) {
  const void *const *code = heap->pools[0].code;
  for (uint32_t k = 0; code && k < n_kernels; k++) {
    nvm_external *external = (nvm_external *)(uintptr_t)code[k];
    if (!external) continue;
    external->runtime->destroy(external->instance);
    nvm_free(external);
  }
}

/* --- constants -------------------------------------------------------------------------------- */

static int is_uploaded(const nvm_heap *heap, const nvm_tensor *constant) {
  return constant->device != 0 && !heap->pools[constant->device].device->vtable->host_accessible;
}

static nvm_status upload(nvm_heap *heap, const nvm_tensor *constant, nvm_tensor **out_copy) {
  nvm_tensor *copy = NULL;
  NVM_TRY(nvm_tensor_copy(heap, constant, constant->device, &copy));
  copy->header.flags = NVM_FLAG_IMMORTAL | NVM_FLAG_READONLY;
  copy->storage->header.flags |= NVM_FLAG_READONLY;
  *out_copy = copy;
  return NVM_OK;
}

/* How many constants are uploaded. Any number of them may lie on the same bytes of a file, so what
 * they take together is bounded, as it is for weights that are bound late. */
static nvm_status count_uploads(const nvm_vm *vm, uint32_t *out_count) {
  const nvm_program *program = vm->program;
  const size_t most = SIZE_MAX / 64;
  size_t left = program->sections[NVM_SECTION_CONSTANTS].size;
  for (uint32_t i = 0; i < program->n_weights && left < most; i++) left += program->weights[i].size;
  left = (left < most ? left : most) * NVM_LAYOUT_GROWTH + UPLOAD_SLACK;
  for (uint32_t i = 0; i < program->n_constants; i++) {
    const nvm_tensor *constant = program->constants[i];
    if (!is_uploaded(vm->heap, constant)) continue;
    if (constant->bytes > left)
      NVM_FAIL(NVM_MEMORY_LIMIT,
               "constants on devices take more than %d times the bytes that the file has for them",
               NVM_LAYOUT_GROWTH);
    left -= constant->bytes;
    ++*out_count;
  }
  return NVM_OK;
}

/* The program's constants, those of other devices replaced by copies there. */
static nvm_status place_constants(nvm_vm *vm) {
  const nvm_program *program = vm->program;
  uint32_t count = 0;
  vm->constants = program->constants;
  NVM_TRY(count_uploads(vm, &count));
  if (!count) return NVM_OK;
  nvm_tensor **own = nvm_malloc(program->n_constants * sizeof *own);
  if (!own) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for constants");
  memcpy(own, program->constants, program->n_constants * sizeof *own);
  vm->constants = own;
  for (uint32_t i = 0; i < program->n_constants; i++)
    if (is_uploaded(vm->heap, program->constants[i]))
      NVM_TRY(upload(vm->heap, program->constants[i], &own[i]));
  return NVM_OK;
}

static void drop_constants(nvm_vm *vm) {
  if (!vm->constants || vm->constants == vm->program->constants) return;
  for (uint32_t i = 0; i < vm->program->n_constants; i++)
    if (vm->constants[i] != vm->program->constants[i]) nvm_tensor_free(vm->heap, vm->constants[i]);
  nvm_free((void *)(uintptr_t)vm->constants);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Try one backend for a device index. Leaves pool->device NULL if it can't serve. */
static nvm_status try_backend(const nvm_program *program, nvm_pool *pool, const char *name,
                              int32_t ordinal, reasons *r) {
  const nvm_device_vtable *vtable = nvm_device_find(name);
  if (!vtable || vtable->api_version != NVM_DEVICE_API_VERSION) {
    add(r, "; this build has no device backend \"%s\"", name);
    return NVM_OK;
  }
  if (!vtable->host_code && (program->flags & NVM_LOAD_NO_NATIVE)) { /* not even its driver */
    add(r, "; %s: the file's code for it is not used, as native=False asks", name);
    return NVM_OK;
  }
  nvm_status status = vtable->open(ordinal, &pool->device);
  if (status != NVM_OK) return note(r, status);
  if (vtable->host_code) return NVM_OK;
  status = load_code(program, pool, r);
  if (status != NVM_OK || !pool->code) {
    unload(pool, 1);
    vtable->close(pool->device);
    pool->device = NULL;
  }
  return status;
}

static nvm_status none_found(const char *wanted, uint32_t index, const reasons *r) {
  reasons has = {.used = 0};
  for (size_t i = 0; i < nvm_device_count(); i++)
    add(&has, "%s%s", i ? ", " : "", nvm_device_at(i)->name);
  NVM_FAIL(NVM_DEVICE_ERROR,
           "device %u of the executable should be %s, and none can be used here%s. This build has "
           "%s; device=\"cpu\" or fallback runs everything on the host",
           index, wanted, r->text, has.text);
}

/* The first usable of the backends in `wanted`, a list with commas. */
static nvm_status open_index(nvm_vm *vm, uint32_t index, const char *wanted, int32_t ordinal,
                             int fallback) {
  nvm_pool *pool = &vm->heap->pools[index];
  reasons r = {.used = 0};
  char name[64];
  for (const char *at = wanted; at && !pool->device; at = behind_comma(at)) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
    NVM_TRY(try_backend(vm->program, pool, name, ordinal, &r));
  }
  if (!pool->device && fallback) NVM_TRY(try_backend(vm->program, pool, "cpu", 0, &r));
  if (!pool->device) return none_found(wanted, index, &r);
  if (index)
    NVM_LOG(INFO, "device %u (%s) is %s%s", index, wanted, pool->device->vtable->name, r.text);
  return NVM_OK;
}

/* What a device index is served by if the caller names a backend. */
static nvm_status narrow(const nvm_program *program, const char *named, const char **out_all) {
  *out_all = NULL;
  for (uint32_t i = 1; i < program->n_devices; i++)
    if (names(program->devices[i], named)) return NVM_OK;
  const nvm_device_vtable *vtable = nvm_device_find(named);
  if (!vtable) NVM_FAIL(NVM_DEVICE_ERROR, "this build has no device backend \"%s\"", named);
  if (!vtable->host_accessible || !vtable->host_code) {
    reasons r = {.used = 0};
    for (uint32_t i = 0; i < program->n_devices; i++)
      add(&r, "%s%s", i ? ", " : "", program->devices[i]);
    NVM_FAIL(NVM_DEVICE_ERROR,
             "the executable was not compiled for device \"%s\"; it was compiled for %s", named,
             r.text);
  }
  *out_all = named;
  return NVM_OK;
}

nvm_status nvm_vm_open_devices(nvm_vm *vm, const nvm_vm_options *options) {
  const nvm_program *program = vm->program;
  const char *named = options && options->device && *options->device ? options->device : NULL;
  const char *all = NULL;
  if (named) NVM_TRY(narrow(program, named, &all));
  for (uint32_t i = 0; i < program->n_devices; i++) {
    const char *wanted = all ? all : program->devices[i];
    const int is_named = named && i > 0 && !all && names(wanted, named);
    if (is_named) wanted = named;
    /* It counts devices of the backend that is named, if one is. */
    const int32_t ordinal = i > 0 && options && (is_named || all || !named) ? options->ordinal : 0;
    NVM_TRY(open_index(vm, i, wanted, ordinal, options && options->fallback));
  }
  NVM_TRY(open_externals(program, vm->heap, options && options->fallback));
  NVM_TRY(check_externals(program, vm->heap));
  return place_constants(vm);
}

NVM_EXPORT const char *nvm_vm_device(const nvm_vm *vm, uint32_t index) {
  return index < vm->heap->n_pools ? vm->heap->pools[index].device->vtable->name : NULL;
}

void nvm_vm_close_devices(nvm_vm *vm) {
  nvm_heap *heap = vm->heap;
  if (nvm_vm_sync(vm) != NVM_OK) NVM_LOG(DEBUG, "closing: %s", nvm_last_error()->message);
  drop_constants(vm);
  close_externals(heap, vm->program->n_kernels);
  for (uint32_t i = 0; i < heap->n_pools; i++)
    if (heap->pools[i].device)
      unload(&heap->pools[i], i == 0 || !heap->pools[i].device->vtable->host_code);
}

nvm_status nvm_vm_sync(nvm_vm *vm) {
  nvm_status status = NVM_OK;
  for (uint32_t i = 1; i < vm->heap->n_pools; i++) {
    nvm_device *device = vm->heap->pools[i].device;
    if (!device) continue;
    const nvm_status one = device->vtable->sync(device);
    if (status == NVM_OK) status = one;
  }
  return status;
}
