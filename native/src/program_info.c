/* What a loaded program says about itself: the getters of nvm_api.h. Indices out of range give NULL
 * or 0. */
#include <stdio.h>
#include <string.h>

#include "cpu_features.h"
#include "generated/nvm_dtype.h"
#include "program.h"
#include "status.h"
#include "table_fields.h"

NVM_EXPORT uint32_t nvm_program_function_count(const nvm_program *program) {
  return program->n_functions;
}

NVM_EXPORT nvm_status nvm_program_function(const nvm_program *program, uint32_t index,
                                           nvm_function_info *out_info) {
  if (index >= program->n_functions) {
    return nvm_fail(NVM_FUNCTION_NOT_FOUND, "there is no function %u, the program has %u", index,
                    program->n_functions);
  }
  const nvm_function *f = &program->functions[index];
  *out_info = (nvm_function_info){.name = f->name,
                                  .is_public = f->is_public,
                                  .n_params = f->n_params,
                                  .result_type = f->result_type,
                                  .n_ints = f->n_ints,
                                  .n_objs = f->n_objs,
                                  .n_dims = f->n_dims,
                                  .n_checked = f->n_checked,
                                  .code = f->code,
                                  .n_words = f->n_words,
                                  .kinds = f->kinds,
                                  .result_kind = f->result_kind};
  return nvm_ok();
}

NVM_EXPORT nvm_status nvm_program_find(const nvm_program *program, const char *name,
                                       uint32_t *out_index) {
  uint32_t low = 0, high = program->n_functions;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(program->functions[program->by_name[middle]].name, name);
    if (order == 0) {
      *out_index = program->by_name[middle];
      return nvm_ok();
    }
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return nvm_fail(NVM_FUNCTION_NOT_FOUND, "there is no function @%s", name);
}

NVM_EXPORT nvm_status nvm_program_param(const nvm_program *program, uint32_t function,
                                        uint32_t index, nvm_param_info *out_info) {
  if (function >= program->n_functions || index >= program->functions[function].n_params) {
    return nvm_fail(NVM_INVALID_INPUT, "function %u has no parameter %u", function, index);
  }
  const nvm_param *param = &program->functions[function].params[index];
  *out_info = (nvm_param_info){.name = param->name, .type = param->type};
  return nvm_ok();
}

NVM_EXPORT const char *nvm_program_dim(const nvm_program *program, uint32_t function, uint32_t slot,
                                       int32_t *out_param) {
  if (function >= program->n_functions || slot >= program->functions[function].n_dims) return NULL;
  const nvm_dim_slot *dim = &program->functions[function].dims[slot];
  *out_param = dim->param;
  return dim->name;
}

NVM_EXPORT const char *nvm_program_checked(const nvm_program *program, uint32_t function,
                                           uint32_t index) {
  if (function >= program->n_functions || index >= program->functions[function].n_checked) {
    return NULL;
  }
  return program->functions[function].checked[index];
}

NVM_EXPORT int32_t nvm_program_span(const nvm_program *program, uint32_t function, uint32_t pc,
                                    const char **out_source, uint32_t *out_line,
                                    uint32_t *out_column) {
  *out_source = "";
  *out_line = *out_column = 0;
  if (function >= program->n_functions) return 0;
  const nvm_function *f = &program->functions[function];
  const uint8_t *at = f->spans, *end = at + f->n_span_bytes;
  uint64_t start = 0;
  nvm_span next, last = {0};
  while (at != end && nvm_read_span(&at, end, &next)) {
    start += next.words;
    if (start > pc) break;
    last = next;
  }
  if (last.source == 0) return 0;
  *out_source = program->sources[last.source - 1];
  *out_line = last.line;
  *out_column = last.column;
  return 1;
}

NVM_EXPORT uint32_t nvm_program_type_count(const nvm_program *program) { return program->n_types; }

NVM_EXPORT const int64_t *nvm_program_type(const nvm_program *program, uint32_t index,
                                           size_t *out_words) {
  *out_words = 0;
  if (index >= program->n_types) return NULL;
  *out_words = program->types[index].n_words;
  return program->types[index].words;
}

NVM_EXPORT nvm_status nvm_program_type_info(const nvm_program *program, uint32_t type,
                                            nvm_type_info *out_info) {
  if (type >= program->n_types) {
    return nvm_fail(NVM_INVALID_INPUT, "there is no type %u, the program has %u", type,
                    program->n_types);
  }
  const nvm_type *t = &program->types[type];
  const int is_tensor = t->words[0] == NVM_TYPE_TENSOR, is_adt = t->words[0] == NVM_TYPE_ADT;
  const int has_parts = !is_tensor && t->words[0] != NVM_TYPE_VARIABLE;
  const uint32_t first = is_tensor || is_adt ? 2 : 1;
  *out_info = (nvm_type_info){
      .kind = (int32_t)t->words[0],
      .dtype = is_tensor ? (int32_t)t->words[1] : -1,
      .rank = is_tensor ? t->n_words - 2 : 0,
      .dims = is_tensor ? t->words + 2 : NULL,
      .number = is_adt || t->words[0] == NVM_TYPE_VARIABLE ? (int32_t)t->words[1] : -1,
      .n_parts = has_parts ? t->n_words - first : 0,
      .parts = has_parts ? t->words + first : NULL};
  return nvm_ok();
}

/* Whether `name` is that of a constructor: "Node", or "Tree.Node". */
static int names_constructor(const nvm_program *program, const nvm_ctor *ctor, const char *name) {
  if (strcmp(ctor->name, name) == 0) return 1;
  const char *adt = program->adts[ctor->adt].name;
  const size_t length = strlen(adt);
  return strncmp(name, adt, length) == 0 && name[length] == '.' &&
         strcmp(name + length + 1, ctor->name) == 0;
}

NVM_EXPORT nvm_status nvm_program_find_constructor(const nvm_program *program, const char *name,
                                                   uint32_t *out_index) {
  enum { NAMES_BYTES = 600 };
  char names[NAMES_BYTES] = "none";
  size_t used = 0;
  uint32_t found = 0, count = 0;
  for (uint32_t i = 1; i < program->n_ctors; i++) {
    if (!names_constructor(program, &program->ctors[i], name)) continue;
    found = i;
    count++;
  }
  if (count == 1) {
    *out_index = found;
    return nvm_ok();
  }
  for (uint32_t i = 1; i < program->n_ctors && used < NAMES_BYTES; i++) {
    const nvm_ctor *ctor = &program->ctors[i];
    if (count && !names_constructor(program, ctor, name)) continue;
    const int wrote = snprintf(names + used, NAMES_BYTES - used, "%s%s.%s", used ? ", " : "",
                               program->adts[ctor->adt].name, ctor->name);
    used += wrote > 0 ? (size_t)wrote : 0;
  }
  NVM_FAIL(NVM_INVALID_INPUT, "%s named %s; the executable has %s",
           count ? "several constructors are" : "no constructor is", name, names);
}

NVM_EXPORT uint32_t nvm_program_adt_count(const nvm_program *program) { return program->n_adts; }

NVM_EXPORT const char *nvm_program_adt(const nvm_program *program, uint32_t index,
                                       uint32_t *out_n_params, uint32_t *out_first,
                                       uint32_t *out_count) {
  if (index >= program->n_adts) return NULL;
  const nvm_adt_def *adt = &program->adts[index];
  *out_n_params = adt->n_type_params;
  *out_first = adt->first;
  *out_count = adt->count;
  return adt->name;
}

NVM_EXPORT uint32_t nvm_program_constructor_count(const nvm_program *program) {
  return program->n_ctors;
}

NVM_EXPORT const char *nvm_program_constructor(const nvm_program *program, uint32_t index,
                                               int32_t *out_adt, uint32_t *out_tag,
                                               uint32_t *out_n_fields,
                                               const uint32_t **out_field_types) {
  if (index >= program->n_ctors) return NULL;
  const nvm_ctor *ctor = &program->ctors[index];
  *out_adt = ctor->adt;
  *out_tag = ctor->tag;
  *out_n_fields = ctor->n_fields;
  *out_field_types = ctor->field_types;
  return ctor->name;
}

NVM_EXPORT uint32_t nvm_program_constant_count(const nvm_program *program) {
  return program->n_constants;
}

NVM_EXPORT const void *nvm_program_constant(const nvm_program *program, uint32_t index,
                                            int32_t *out_dtype, uint32_t *out_rank,
                                            const int64_t **out_dims) {
  if (index >= program->n_constants) return NULL;
  const nvm_tensor *tensor = program->constants[index];
  *out_dtype = tensor->header.extra;
  *out_rank = tensor->rank;
  *out_dims = tensor->dims;
  return tensor->data;
}

NVM_EXPORT uint32_t nvm_program_weight_count(const nvm_program *program) {
  return program->n_weights;
}

NVM_EXPORT nvm_status nvm_program_weight(const nvm_program *program, uint32_t index,
                                         nvm_weight_info *out_info) {
  if (index >= program->n_weights) {
    return nvm_fail(NVM_INVALID_INPUT, "there is no weight %u of %u", index, program->n_weights);
  }
  const nvm_weight *weight = &program->weights[index];
  *out_info = (nvm_weight_info){.name = weight->name,
                                .dtype = (int32_t)weight->dtype,
                                .dtype_name = nvm_dtypes[weight->dtype].name,
                                .rank = weight->rank,
                                .dims = weight->dims,
                                .size = weight->size,
                                .digest = weight->digest};
  return nvm_ok();
}

NVM_EXPORT const char *nvm_program_weights_file(const nvm_program *program) {
  return program->weights_file;
}

NVM_EXPORT int32_t nvm_program_is_bound(const nvm_program *program) {
  return program->n_weights == 0 || program->parent != NULL;
}

NVM_EXPORT const void *nvm_program_signature_block(const nvm_program *program, size_t *out_size) {
  *out_size = program->signature_size;
  return program->signature;
}

NVM_EXPORT uint32_t nvm_program_kernel_count(const nvm_program *program) {
  return program->n_kernels;
}

NVM_EXPORT const char *nvm_program_kernel(const nvm_program *program, uint32_t index,
                                          int32_t *out_kind, int32_t *out_native) {
  if (index >= program->n_kernels) return NULL;
  const nvm_kernel *kernel = &program->kernels[index];
  *out_kind = kernel->kind;
  *out_native = kernel->kind == 0 && kernel->fn != NULL;
  return kernel->name;
}

NVM_EXPORT const char *nvm_program_note(const nvm_program *program, uint32_t index) {
  return index < program->n_notes ? program->notes[index].text : NULL;
}

NVM_EXPORT uint32_t nvm_program_section_count(const nvm_program *program) {
  return program->n_sections;
}

NVM_EXPORT const void *nvm_program_section(const nvm_program *program, uint32_t index,
                                           int32_t *out_kind, const char **out_target,
                                           size_t *out_size) {
  if (index >= program->n_sections) return NULL;
  const nvm_section *section = &program->sections[index];
  *out_kind = section->kind;
  *out_target = section->target;
  *out_size = section->size;
  return section->data;
}

NVM_EXPORT int32_t nvm_program_section_used(const nvm_program *program, uint32_t index,
                                            const char **out_level, const char **out_why) {
  *out_level = *out_why = "";
  if (index >= program->n_sections) return 0;
  *out_level = nvm_cpu_level_of(program->sections[index].target);
  *out_why = program->sections[index].why;
  return program->native != NULL && program->native_section == (int32_t)index;
}

NVM_EXPORT const void *nvm_program_header(const nvm_program *program, size_t *out_size) {
  *out_size = program->header_size;
  return program->header;
}

NVM_EXPORT uint32_t nvm_program_format_version(const nvm_program *program) {
  return program->version;
}

NVM_EXPORT const char *nvm_program_device(const nvm_program *program, uint32_t index) {
  return index < program->n_devices ? program->devices[index] : NULL;
}

NVM_EXPORT const char *nvm_program_producer(const nvm_program *program, const char *key) {
  for (const char *const *at = program->producer; at[0] != NULL; at += 2) {
    if (strcmp(at[0], key) == 0) return at[1];
  }
  return NULL;
}

NVM_EXPORT const char *nvm_program_warning(const nvm_program *program) { return program->warning; }
