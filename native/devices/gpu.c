#include "gpu.h"

#include "alloc.h"

static nvm_status fill(nvm_gpu_module *module, const nvm_device_section *section) {
  void *memory = NULL;
  NVM_TRY(nvm_arena_create(&module->arena));
  nvm_device_code *code = &module->code;
  NVM_TRY(nvm_device_code_read(section->code, section->size, module->arena, code));
  NVM_TRY(nvm_arena_array(module->arena, code->n_kernels, sizeof(nvm_gpu_kernel), &memory));
  module->kernels = memory;
  for (uint32_t k = 0; k < code->n_kernels; k++) {
    const nvm_device_kernel *kernel = &code->kernels[k];
    NVM_TRY(nvm_arena_array(module->arena, kernel->n_launches, sizeof(void *), &memory));
    module->kernels[k] = (nvm_gpu_kernel){.code = kernel, .entries = memory};
  }
  return NVM_OK;
}

static nvm_status check_launches(const nvm_device_code *code, const nvm_device_kernels *kernels) {
  for (uint32_t k = 0; k < code->n_kernels; k++) {
    const uint32_t index = code->kernels[k].index;
    const char *name = NULL;
    const nvm_signature *signature = kernels->find(kernels->program, index, &name);
    if (!signature)
      NVM_FAIL(NVM_INVALID_EXECUTABLE, "device code for kernel %u, which the file does not have",
               index);
    NVM_TRY(nvm_device_code_check(&code->kernels[k], name, signature));
  }
  return NVM_OK;
}

nvm_status nvm_gpu_check_code(const nvm_device_section *section,
                              const nvm_device_kernels *kernels) {
  if (section->kind != NVM_SECTION_DEVICE) return NVM_OK; /* not for this backend */
  nvm_arena *arena = NULL;
  nvm_device_code code;
  NVM_TRY(nvm_arena_create(&arena));
  nvm_status status = nvm_device_code_read(section->code, section->size, arena, &code);
  if (status == NVM_OK) status = check_launches(&code, kernels);
  nvm_arena_destroy(arena);
  return status;
}

nvm_status nvm_gpu_module_create(nvm_gpu *gpu, const nvm_device_section *section,
                                 nvm_gpu_module **out_module) {
  if (section->kind != NVM_SECTION_DEVICE)
    NVM_FAIL(NVM_UNSUPPORTED, "%s takes no external code", gpu->base.vtable->name);
  nvm_gpu_module *module = nvm_calloc(sizeof *module);
  if (!module) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a module");
  module->next = gpu->modules;
  gpu->modules = module;
  const nvm_status status = fill(module, section);
  if (status != NVM_OK) {
    nvm_gpu_module_destroy(gpu, module);
    return status;
  }
  *out_module = module;
  return NVM_OK;
}

void nvm_gpu_module_destroy(nvm_gpu *gpu, nvm_gpu_module *module) {
  nvm_gpu_module **at = &gpu->modules;
  while (*at != module) at = &(*at)->next;
  *at = module->next;
  nvm_arena_destroy(module->arena);
  nvm_free(module);
}

nvm_status nvm_gpu_find_entries(nvm_gpu *gpu, nvm_gpu_module *module, nvm_gpu_find_entry find) {
  for (uint32_t k = 0; k < module->code.n_kernels; k++) {
    const nvm_gpu_kernel *kernel = &module->kernels[k];
    for (uint32_t i = 0; i < kernel->code->n_launches; i++)
      NVM_TRY(find(gpu, module, &kernel->code->launches[i], &kernel->entries[i]));
  }
  return NVM_OK;
}

nvm_status nvm_gpu_find_kernel(nvm_device *device, void *module, uint32_t index, const char *name,
                               const nvm_signature *signature, const void **out_code) {
  const nvm_gpu_module *m = module;
  const nvm_device_kernel *code = nvm_device_code_find(&m->code, index);
  if (!code)
    NVM_FAIL(NVM_UNSUPPORTED, "%s: the file has no device code for kernel %s", device->vtable->name,
             name);
  NVM_TRY(nvm_device_code_check(code, name, signature));
  nvm_gpu_kernel *found = &m->kernels[code - m->code.kernels];
  found->name = name;
  found->signature = signature;
  *out_code = found;
  return NVM_OK;
}

nvm_status nvm_gpu_admit(nvm_gpu *gpu, const nvm_kernel_ctx *ctx) {
  NVM_TRY(ctx->poll(ctx));
  if (gpu->queued >= NVM_GPU_QUEUE) NVM_TRY(gpu->base.vtable->sync(&gpu->base));
  gpu->queued++;
  return NVM_OK;
}

nvm_status nvm_gpu_report(nvm_gpu *gpu, const nvm_device_fault *found) {
  gpu->may_have_fault = 0;
  if (found->code == 0) return NVM_OK;
  const char *name = "of the device";
  for (const nvm_gpu_module *m = gpu->modules; m; m = m->next)
    for (uint32_t k = 0; k < m->code.n_kernels; k++)
      if (m->kernels[k].name && (int64_t)m->kernels[k].code->index == found->kernel)
        name = m->kernels[k].name;
  return nvm_kernel_fault(name, found->code, found->operand, found->index, found->bound);
}
