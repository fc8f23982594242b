#include "device_code.h"

#include <string.h>

#include "dim_program.h"
#include "msgpack.h"

/* --- reading ---------------------------------------------------------------------------------- */

/* A postfix program as nvm_dim_program runs them; the dims that it refers to are checked later. */
static nvm_status check_program(const nvm_mp *mp, const int64_t *words, uint32_t n_words) {
  uint32_t depth = 0;
  for (uint32_t i = 0; i < n_words; i++) {
    const int64_t op = words[i];
    if (op == NVM_DIM_CONST || op == NVM_DIM_REF) {
      if (++i == n_words || depth == NVM_MAX_EXPR_DEPTH) break;
      if (op == NVM_DIM_REF && (words[i] < 0 || words[i] >= NVM_MAX_DIMS)) break;
      depth++;
      if (i + 1 == n_words && depth == 1) return NVM_OK;
    } else {
      if (op < NVM_DIM_ADD || op > NVM_DIM_MAX || depth < 2) break;
      depth--;
      if (i + 1 == n_words && depth == 1) return NVM_OK;
    }
  }
  return nvm_mp_fail(mp, "grid: the dim program is malformed");
}

static nvm_status read_grid(nvm_mp *mp, nvm_arena *arena, nvm_device_launch *launch) {
  NVM_TRY(nvm_mp_tuple(mp, "grid", 3));
  for (int axis = 0; axis < 3; axis++) {
    uint32_t count = 0;
    void *memory = NULL;
    NVM_TRY(nvm_mp_array(mp, "grid", 1, &count));
    if (count > NVM_MAX_EXPR_WORDS)
      return nvm_mp_fail(mp, "grid: expected at most %d words, got %u", NVM_MAX_EXPR_WORDS, count);
    NVM_TRY(nvm_arena_array(arena, count, sizeof(int64_t), &memory));
    int64_t *words = memory;
    for (uint32_t i = 0; i < count; i++)
      NVM_TRY(nvm_mp_int(mp, "grid", INT64_MIN, INT64_MAX, &words[i]));
    NVM_TRY(check_program(mp, words, count));
    launch->grid[axis].words = words;
    launch->grid[axis].n_words = count;
  }
  return NVM_OK;
}

static nvm_status read_block(nvm_mp *mp, nvm_device_launch *launch) {
  uint32_t left = NVM_MAX_GROUP_THREADS;
  NVM_TRY(nvm_mp_tuple(mp, "block", 3));
  for (int axis = 0; axis < 3; axis++) {
    int64_t threads = 0;
    NVM_TRY(nvm_mp_int(mp, "block", 1, left, &threads));
    launch->block[axis] = (uint32_t)threads;
    left /= launch->block[axis];
  }
  return NVM_OK;
}

/* Ascending numbers below `bound`. */
static nvm_status read_numbers(nvm_mp *mp, nvm_arena *arena, const char *what, uint32_t most,
                               uint32_t bound, uint32_t *out_count, const uint16_t **out_numbers) {
  void *memory = NULL;
  NVM_TRY(nvm_mp_array(mp, what, 1, out_count));
  if (*out_count > most)
    return nvm_mp_fail(mp, "%s: expected at most %u, got %u", what, most, *out_count);
  NVM_TRY(nvm_arena_array(arena, *out_count, sizeof(uint16_t), &memory));
  uint16_t *numbers = memory;
  int64_t least = 0;
  for (uint32_t i = 0; i < *out_count; i++) {
    int64_t number = 0;
    NVM_TRY(nvm_mp_int(mp, what, least, bound - 1, &number));
    numbers[i] = (uint16_t)number;
    least = number + 1;
  }
  *out_numbers = numbers;
  return NVM_OK;
}

static nvm_status read_launch(nvm_mp *mp, nvm_arena *arena, nvm_device_launch *launch) {
  const char *entry = NULL;
  size_t length = 0;
  uint32_t can_fail = 0;
  NVM_TRY(nvm_mp_tuple(mp, "launch", 7));
  NVM_TRY(nvm_mp_str(mp, "entry", &entry, &length));
  if (length == 0 || length > 255)
    return nvm_mp_fail(mp, "entry: expected a name of 1 to 255 bytes, got %zu", length);
  NVM_TRY(nvm_arena_string(arena, entry, length, &launch->entry));
  NVM_TRY(read_grid(mp, arena, launch));
  NVM_TRY(read_block(mp, launch));
  NVM_TRY(read_numbers(mp, arena, "operands", NVM_MAX_OPERANDS, NVM_MAX_OPERANDS,
                       &launch->n_operands, &launch->operands));
  NVM_TRY(read_numbers(mp, arena, "dims", NVM_MAX_LAUNCH_DIMS, NVM_MAX_DIMS, &launch->n_dims,
                       &launch->dims));
  NVM_TRY(nvm_mp_u32(mp, "shared bytes", INT32_MAX, &launch->shared_bytes));
  NVM_TRY(nvm_mp_u32(mp, "can fail", 1, &can_fail));
  launch->can_fail = (uint8_t)can_fail;
  return NVM_OK;
}

static nvm_status read_kernel(nvm_mp *mp, nvm_arena *arena, int64_t least,
                              nvm_device_kernel *kernel) {
  int64_t index = 0;
  void *memory = NULL;
  NVM_TRY(nvm_mp_int(mp, "kernel index, ascending", least, INT32_MAX, &index));
  kernel->index = (uint32_t)index;
  NVM_TRY(nvm_mp_array(mp, "launches", 8, &kernel->n_launches));
  if (kernel->n_launches > NVM_MAX_LAUNCHES)
    return nvm_mp_fail(mp, "launches: expected at most %d, got %u", NVM_MAX_LAUNCHES,
                       kernel->n_launches);
  NVM_TRY(nvm_arena_array(arena, kernel->n_launches, sizeof(nvm_device_launch), &memory));
  nvm_device_launch *launches = memory;
  kernel->launches = launches;
  for (uint32_t i = 0; i < kernel->n_launches; i++) NVM_TRY(read_launch(mp, arena, &launches[i]));
  return NVM_OK;
}

nvm_status nvm_device_code_read(const void *data, size_t size, nvm_arena *arena,
                                nvm_device_code *out_code) {
  nvm_mp mp;
  const uint8_t *source = NULL;
  void *memory = NULL;
  nvm_device_code code = {.n_kernels = 0};
  nvm_mp_init(&mp, data, size);
  mp.part = "device code";
  NVM_TRY(nvm_mp_record(&mp, "device code", 2));
  NVM_TRY(nvm_mp_key(&mp, "source"));
  NVM_TRY(nvm_mp_bin(&mp, "source", &source, &code.source_size));
  if (memchr(source, 0, code.source_size)) return nvm_mp_fail(&mp, "source: it holds a NUL");
  NVM_TRY(nvm_arena_string(arena, (const char *)source, code.source_size, &code.source));
  NVM_TRY(nvm_mp_key(&mp, "kernels"));
  NVM_TRY(nvm_mp_map(&mp, "kernels", &code.n_kernels));
  NVM_TRY(nvm_arena_array(arena, code.n_kernels, sizeof(nvm_device_kernel), &memory));
  nvm_device_kernel *kernels = memory;
  mp.table = "kernels";
  int64_t least = 0;
  for (uint32_t i = 0; i < code.n_kernels; i++) {
    mp.row = i;
    NVM_TRY(read_kernel(&mp, arena, least, &kernels[i]));
    least = (int64_t)kernels[i].index + 1;
  }
  mp.table = NULL;
  if (mp.at != mp.end)
    return nvm_mp_fail(&mp, "%zu bytes are left behind it", (size_t)(mp.end - mp.at));
  code.kernels = kernels;
  *out_code = code;
  return NVM_OK;
}

/* --- use -------------------------------------------------------------------------------------- */

const nvm_device_kernel *nvm_device_code_find(const nvm_device_code *code, uint32_t index) {
  uint32_t low = 0, high = code->n_kernels;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (code->kernels[middle].index < index)
      low = middle + 1;
    else
      high = middle;
  }
  return low < code->n_kernels && code->kernels[low].index == index ? &code->kernels[low] : NULL;
}

nvm_status nvm_device_code_check(const nvm_device_kernel *kernel, const char *name,
                                 const nvm_signature *signature) {
  const uint32_t sizes = (uint32_t)signature->n_dims + signature->n_attrs;
  const uint32_t all = sizes + signature->n_pitches;
  if (signature->n_out_dims)
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "device code of kernel %s: the kernel sets out-dims", name);
  for (uint32_t k = 0; k < kernel->n_launches; k++) {
    const nvm_device_launch *launch = &kernel->launches[k];
    if (launch->n_operands && launch->operands[launch->n_operands - 1] >= signature->n_operands)
      NVM_FAIL(NVM_INVALID_EXECUTABLE,
               "device code of kernel %s: launch %u takes operand %u, the kernel has %u", name, k,
               launch->operands[launch->n_operands - 1], signature->n_operands);
    if (launch->n_dims && launch->dims[launch->n_dims - 1] >= all)
      NVM_FAIL(NVM_INVALID_EXECUTABLE,
               "device code of kernel %s: launch %u takes dim %u, the kernel has %u", name, k,
               launch->dims[launch->n_dims - 1], all);
    for (int axis = 0; axis < 3; axis++) {
      const int64_t *words = launch->grid[axis].words;
      for (uint32_t i = 0; i < launch->grid[axis].n_words; i++) {
        if (words[i] > NVM_DIM_REF) continue;
        if (words[i] == NVM_DIM_REF && words[i + 1] >= sizes)
          NVM_FAIL(NVM_INVALID_EXECUTABLE,
                   "device code of kernel %s: launch %u: its grid refers to dim %lld of %u", name,
                   k, (long long)words[i + 1], sizes);
        i++;
      }
    }
  }
  return NVM_OK;
}

nvm_status nvm_device_grid(const nvm_device_launch *launch, const nvm_signature *signature,
                           const int64_t *dims, uint32_t out_groups[3]) {
  const size_t sizes = (size_t)signature->n_dims + signature->n_attrs;
  int empty = 0;
  for (int axis = 0; axis < 3; axis++) {
    int64_t groups = 0;
    NVM_TRY(nvm_dim_program(launch->grid[axis].words, launch->grid[axis].n_words, dims, sizes,
                            &groups));
    if (groups > INT32_MAX)
      NVM_FAIL(NVM_UNSUPPORTED, "%s needs a grid of %lld groups, at most %d can be launched",
               launch->entry, (long long)groups, INT32_MAX);
    out_groups[axis] = groups > 0 ? (uint32_t)groups : 0;
    empty |= groups <= 0;
  }
  if (empty) memset(out_groups, 0, 3 * sizeof *out_groups);
  return NVM_OK;
}
