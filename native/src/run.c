/* Calls by name, and values of one result as arguments of the next run. Made of other functions of
 * nvm_api.h alone. */
#include <string.h>

#include "alloc.h"
#include "status.h"

enum { FEW = 32 };

static void release_named(const nvm_named_arg *args, size_t n_args) {
  for (size_t i = 0; i < n_args; i++)
    for (size_t k = 0; k < args[i].n_values; k++)
      if (args[i].values[k].release) args[i].values[k].release(args[i].values[k].owner);
}

/* The argument for a parameter; NULL with an error on record if there is none, or two. */
static const nvm_named_arg *find_argument(const char *function, const char *name,
                                          const nvm_named_arg *args, size_t n_args) {
  const nvm_named_arg *found = NULL;
  for (size_t i = 0; i < n_args; i++) {
    if (!args[i].name || strcmp(args[i].name, name) != 0) continue;
    if (found) {
      (void)!nvm_fail(NVM_INVALID_INPUT, "@%s: parameter %%%s was given twice", function, name);
      return NULL;
    }
    found = &args[i];
  }
  if (!found) (void)!nvm_fail(NVM_INVALID_INPUT, "@%s: missing argument for %%%s", function, name);
  return found;
}

static nvm_status unknown_argument(const nvm_program *program, uint32_t function,
                                   const nvm_function_info *info, const nvm_named_arg *args,
                                   size_t n_args) {
  for (size_t i = 0; i < n_args; i++) {
    uint32_t p = 0;
    nvm_param_info param = {0};
    for (; p < info->n_params; p++) {
      NVM_TRY(nvm_program_param(program, function, p, &param));
      if (args[i].name && strcmp(args[i].name, param.name) == 0) break;
    }
    if (p == info->n_params)
      NVM_FAIL(NVM_INVALID_INPUT, "@%s has no parameter %%%s", info->name,
               args[i].name ? args[i].name : "");
  }
  return NVM_OK;
}

/* Put the values in the order of the parameters; out: room for all of them. */
static nvm_status order(const nvm_program *program, uint32_t function, const nvm_named_arg *args,
                        size_t n_args, nvm_arg *out) {
  nvm_function_info info;
  NVM_TRY(nvm_program_function(program, function, &info));
  NVM_TRY(unknown_argument(program, function, &info, args, n_args));
  for (uint32_t p = 0; p < info.n_params; p++) {
    nvm_param_info param;
    NVM_TRY(nvm_program_param(program, function, p, &param));
    const nvm_named_arg *found = find_argument(info.name, param.name, args, n_args);
    if (!found) return nvm_last_error()->code;
    if (found->n_values) memcpy(out, found->values, found->n_values * sizeof *out);
    out += found->n_values;
  }
  return NVM_OK;
}

NVM_EXPORT nvm_status nvm_vm_run(nvm_vm *vm, const char *function, const nvm_named_arg *args,
                                 size_t n_args, const nvm_want *wants, uint32_t n_wants,
                                 nvm_result **out_result) {
  nvm_error_clear();
  const nvm_program *program = nvm_vm_program(vm);
  nvm_arg few[FEW], *flat = few;
  size_t count = 0;
  uint32_t index;
  for (size_t i = 0; i < n_args; i++) count += args[i].n_values;
  if (count > FEW) flat = nvm_malloc(count * sizeof *flat);
  nvm_status status = flat ? nvm_program_find(program, function, &index)
                           : nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %zu arguments", count);
  if (status == NVM_OK) status = order(program, index, args, n_args, flat);
  if (status == NVM_OK)
    status = nvm_vm_invoke_into(vm, index, flat, count, wants, n_wants, out_result);
  else
    release_named(args, n_args);
  if (flat != few) nvm_free(flat);
  return status;
}

NVM_EXPORT nvm_status nvm_vm_call(nvm_vm *vm, const char *function, const nvm_arg *args,
                                  size_t n_args, nvm_result **out_result) {
  nvm_error_clear();
  uint32_t index;
  nvm_status status = nvm_program_find(nvm_vm_program(vm), function, &index);
  if (status == NVM_OK) return nvm_vm_invoke(vm, index, args, n_args, out_result);
  for (size_t i = 0; i < n_args; i++)
    if (args[i].release) args[i].release(args[i].owner);
  return status;
}

/* --- values of a result ----------------------------------------------------------------------- */

static size_t pass(const nvm_out *value, int give, nvm_arg *args) {
  const nvm_out *first = value - (value->n_values - 1);
  for (uint32_t i = 0; i < value->n_values; i++) {
    const nvm_out *out = &first[i];
    args[i] = (nvm_arg){.kind = out->kind == NVM_OUT_TENSOR ? NVM_ARG_TENSOR
                                : out->kind == NVM_OUT_ADT  ? NVM_ARG_ADT
                                                            : NVM_ARG_HANDLE,
                        .dtype = out->dtype,
                        .rank = out->rank,
                        .ctor = out->ctor,
                        .n_fields = out->n_fields,
                        .dl_device_type = out->dl_device_type,
                        .data = out->data,
                        .shape = out->shape,
                        .handle = out->handle,
                        .storage = give ? out->storage : NULL};
  }
  return value->n_values;
}

NVM_EXPORT size_t nvm_lend(const nvm_out *value, nvm_arg *args) { return pass(value, 0, args); }

NVM_EXPORT size_t nvm_move(const nvm_out *value, nvm_arg *args) { return pass(value, 1, args); }

NVM_EXPORT const nvm_out *nvm_result_root(const nvm_result *result) {
  size_t count = nvm_result_count(result);
  return count ? nvm_result_values(result) + count - 1 : NULL;
}

NVM_EXPORT const nvm_out *nvm_out_field(const nvm_out *value, uint32_t index) {
  if (value->kind != NVM_OUT_ADT || index >= value->n_fields) return NULL;
  const nvm_out *field = value - 1;
  for (uint32_t k = value->n_fields - 1; k > index; k--) field -= field->n_values;
  return field;
}
