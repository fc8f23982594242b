/* Sections of code for devices and host runtimes. See code_sections.h. */
#include "code_sections.h"

#include <string.h>

#include "nvm_device.h"

nvm_status nvm_external_begin(nvm_mp *mp, const nvm_section *section, uint32_t *out_count) {
  nvm_mp_init(mp, section->data, section->size);
  mp->part = "external code";
  mp->table = section->target;
  return nvm_mp_map(mp, "external code", out_count);
}

nvm_status nvm_external_next(nvm_mp *mp, const nvm_program *program, uint32_t *out_kernel,
                             const uint8_t **out_blob, size_t *out_size) {
  NVM_TRY(nvm_mp_u32(mp, "kernel", UINT32_MAX, out_kernel));
  mp->row = *out_kernel;
  if (*out_kernel >= program->n_kernels || program->kernels[*out_kernel].kind == 1)
    return nvm_mp_fail(mp, "there is no kernel of that number for external code");
  return nvm_mp_bin(mp, "blob", out_blob, out_size);
}

static nvm_status check_external(nvm_loader *loader, const nvm_section *section,
                                 uint8_t *has_code) {
  uint32_t count = 0, kernel = 0;
  int64_t last = -1;
  const uint8_t *blob = NULL;
  size_t size = 0;
  nvm_mp mp;
  NVM_TRY(nvm_external_begin(&mp, section, &count));
  for (uint32_t i = 0; i < count; i++) {
    NVM_TRY(nvm_external_next(&mp, loader->program, &kernel, &blob, &size));
    if ((int64_t)kernel <= last) return nvm_mp_fail(&mp, "kernels are not in ascending order");
    last = kernel;
    has_code[kernel] = 1;
  }
  return mp.at == mp.end ? NVM_OK : nvm_mp_fail(&mp, "bytes behind the end of the map");
}

static const nvm_signature *find_signature(const void *program, uint32_t index,
                                           const char **out_name) {
  const nvm_program *p = program;
  if (index >= p->n_kernels) return NULL;
  *out_name = p->kernels[index].name;
  return &p->kernels[index].signature;
}

nvm_status nvm_check_code_sections(nvm_loader *loader) {
  const nvm_program *p = loader->program;
  const nvm_section *seen[NVM_MAX_DEVICES];
  uint32_t n_seen = 0;
  void *memory = NULL;
  NVM_TRY(nvm_arena_alloc(loader->arena, p->n_kernels, 1, &memory));
  uint8_t *has_code = memory;
  const nvm_device_kernels kernels = {p, find_signature};
  for (uint32_t i = 3; i < p->n_sections && p->version > 1; i++) {
    const nvm_section *section = &p->sections[i];
    if (section->kind <= NVM_SECTION_NATIVE) continue;
    int fine = section->target[0] != 0 && n_seen < NVM_MAX_DEVICES;
    for (uint32_t k = 0; k < n_seen; k++)
      fine &= seen[k]->kind != section->kind || strcmp(seen[k]->target, section->target) != 0;
    if (!fine)
      return nvm_fail(NVM_INVALID_EXECUTABLE,
                      "section %u: expected a target of its own and at most %d with code for "
                      "devices and runtimes, got \"%s\"",
                      i, NVM_MAX_DEVICES, section->target);
    seen[n_seen++] = section;
    if (section->kind == NVM_SECTION_EXTERNAL) NVM_TRY(check_external(loader, section, has_code));
    const nvm_device_section given = {section->kind, section->target, section->data, section->size};
    NVM_TRY(nvm_device_check_code(&given, &kernels));
  }
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    if (p->kernels[i].kind == 2 && !has_code[i])
      return nvm_fail(NVM_INVALID_EXECUTABLE, "kernel %s: there is no external code for it",
                      p->kernels[i].name);
  }
  return NVM_OK;
}
