/* The payload of device code: what is read, and what hostile bytes give. */
#include "device_code.h"

#include "harness.h"

/* {"source": b"ab", "kernels": {3: [["k", [[1, 0], [0, 2], [1, 1, 0, 7, 2]], [2, 1, 1], [0, 2], [1,
 * 5], 64, 1]]}} */
static const uint8_t valid[] = {
    0x82, 0xa6, 's', 'o',  'u', 'r',  'c',  'e',  0xc4, 2,    'a',  'b', 0xa7, 'k',  'e', 'r', 'n',
    'e',  'l',  's', 0x81, 3,   0x91, 0x97, 0xa1, 'k',  0x93, 0x92, 1,   0,    0x92, 0,   2,   0x95,
    1,    1,    0,   7,    2,   0x93, 2,    1,    1,    0x92, 0,    2,   0x92, 1,    5,   64,  1};
enum { GRID = 26, BLOCK = 39, OPERANDS = 43, DIMS = 46, SHARED = 49 };

static nvm_status read_into(const uint8_t *data, size_t size, nvm_device_code *code,
                            nvm_arena **arena) {
  *code = (nvm_device_code){.n_kernels = 0};
  CHECK_STATUS(nvm_arena_create(arena), NVM_OK);
  return nvm_device_code_read(data, size, *arena, code);
}

static void test_valid(void) {
  nvm_device_code code;
  nvm_arena *arena;
  CHECK_STATUS(read_into(valid, sizeof valid, &code, &arena), NVM_OK);
  CHECK(code.source_size == 2 && strcmp(code.source, "ab") == 0 && code.n_kernels == 1);
  CHECK(nvm_device_code_find(&code, 2) == NULL && nvm_device_code_find(&code, 4) == NULL);
  const nvm_device_kernel *kernel = nvm_device_code_find(&code, 3);
  CHECK(kernel && kernel->n_launches == 1);
  if (!kernel) return;
  const nvm_device_launch *launch = kernel->launches;
  CHECK(strcmp(launch->entry, "k") == 0 && launch->block[0] == 2 && launch->shared_bytes == 64);
  CHECK(launch->n_operands == 2 && launch->operands[1] == 2 && launch->dims[1] == 5);
  nvm_signature signature = {.n_operands = 3, .n_dims = 1, .n_attrs = 1, .n_pitches = 4};
  CHECK_STATUS(nvm_device_code_check(kernel, "name", &signature), NVM_OK);
  uint32_t groups[3];
  int64_t dims[] = {5, 6};
  CHECK_STATUS(nvm_device_grid(launch, &signature, dims, groups), NVM_OK);
  CHECK(groups[0] == 5 && groups[1] == 2 && groups[2] == 13);
  dims[0] = 0;
  CHECK_STATUS(nvm_device_grid(launch, &signature, dims, groups), NVM_OK);
  CHECK(groups[0] == 0 && groups[1] == 0 && groups[2] == 0);
  dims[0] = -1;
  CHECK_STATUS(nvm_device_grid(launch, &signature, dims, groups), NVM_OK);
  CHECK(groups[0] == 0);
  dims[0] = (int64_t)1 << 31;
  CHECK_STATUS(nvm_device_grid(launch, &signature, dims, groups), NVM_UNSUPPORTED);
  dims[0] = 1, dims[1] = INT64_MAX;
  CHECK_STATUS(nvm_device_grid(launch, &signature, dims, groups), NVM_DIM_OVERFLOW);
  nvm_arena_destroy(arena);
}

static void test_signatures(void) {
  nvm_device_code code;
  nvm_arena *arena;
  CHECK_STATUS(read_into(valid, sizeof valid, &code, &arena), NVM_OK);
  const nvm_device_kernel *kernel = code.kernels;
  nvm_signature few = {.n_operands = 2, .n_dims = 2, .n_pitches = 4};
  CHECK_STATUS(nvm_device_code_check(kernel, "name", &few), NVM_INVALID_EXECUTABLE);
  CHECK_MESSAGE("operand 2, the kernel has 2");
  nvm_signature short_dims = {.n_operands = 3, .n_dims = 2, .n_pitches = 3};
  CHECK_STATUS(nvm_device_code_check(kernel, "name", &short_dims), NVM_INVALID_EXECUTABLE);
  CHECK_MESSAGE("dim 5, the kernel has 5");
  nvm_signature pitches = {.n_operands = 3, .n_dims = 1, .n_pitches = 5};
  CHECK_STATUS(nvm_device_code_check(kernel, "name", &pitches), NVM_INVALID_EXECUTABLE);
  CHECK_MESSAGE("its grid refers to dim 1 of 1");
  nvm_signature out_dims = {.n_operands = 3, .n_dims = 2, .n_pitches = 4, .n_out_dims = 1};
  CHECK_STATUS(nvm_device_code_check(kernel, "name", &out_dims), NVM_INVALID_EXECUTABLE);
  nvm_arena_destroy(arena);
}

/* One byte replaced. */
static void refuse(size_t place, uint8_t byte, const char *message) {
  uint8_t data[sizeof valid];
  nvm_device_code code;
  nvm_arena *arena;
  memcpy(data, valid, sizeof data);
  data[place] = byte;
  CHECK_STATUS(read_into(data, sizeof data, &code, &arena), NVM_INVALID_EXECUTABLE);
  CHECK_MESSAGE(message);
  nvm_arena_destroy(arena);
}

static void test_refused(void) {
  refuse(10, 0, "source: it holds a NUL");
  refuse(21, 0xff, "kernel index, ascending");
  refuse(24, 0xa0, "1 to 255 bytes");
  refuse(GRID + 5, 5, "malformed");     /* an operator without operands */
  refuse(GRID + 2, 2, "malformed");     /* the same, first */
  refuse(GRID + 3, 0xff, "malformed");  /* dim -1 */
  refuse(GRID + 12, 9, "malformed");    /* no operator */
  refuse(BLOCK + 1, 0, "block");        /* no threads */
  refuse(OPERANDS + 1, 2, "operands");  /* 2, 2 */
  refuse(OPERANDS + 2, 64, "operands"); /* beyond NVM_MAX_OPERANDS */
  refuse(DIMS + 1, 5, "dims");          /* 5, 5 */
  refuse(SHARED, 0xff, "shared bytes"); /* -1 */
  refuse(SHARED + 1, 2, "can fail");
}

/* Every prefix, and every byte replaced by every other: an answer, no fault. */
static void test_mutants(void) {
  unsigned read = 0;
  for (size_t size = 0; size < sizeof valid; size++) {
    nvm_device_code code;
    nvm_arena *arena;
    uint8_t *exact = malloc(size + 1); /* so that a sanitizer sees a byte too many */
    memcpy(exact + 1, valid, size);
    CHECK_STATUS(read_into(exact + 1, size, &code, &arena), NVM_INVALID_EXECUTABLE);
    nvm_arena_destroy(arena);
    free(exact);
  }
  for (size_t at = 0; at < sizeof valid; at++) {
    for (unsigned byte = 0; byte < 256; byte++) {
      uint8_t data[sizeof valid];
      nvm_device_code code;
      nvm_arena *arena;
      memcpy(data, valid, sizeof data);
      data[at] = (uint8_t)byte;
      const nvm_status status = read_into(data, sizeof data, &code, &arena);
      CHECK(status == NVM_OK || status == NVM_INVALID_EXECUTABLE);
      nvm_signature any = {.n_operands = 64, .n_dims = 300, .n_pitches = 212};
      int64_t dims[300] = {3};
      uint32_t groups[3];
      for (uint32_t k = 0; status == NVM_OK && k < code.n_kernels; k++) {
        read++;
        if (nvm_device_code_check(&code.kernels[k], "name", &any) != NVM_OK) continue;
        for (uint32_t i = 0; i < code.kernels[k].n_launches; i++)
          if (nvm_device_grid(&code.kernels[k].launches[i], &any, dims, groups) == NVM_OK)
            CHECK(groups[0] <= INT32_MAX);
      }
      nvm_arena_destroy(arena);
    }
  }
  CHECK(read > 500);
}

int main(void) {
  test_valid();
  test_signatures();
  test_refused();
  test_mutants();
  if (failures) fprintf(stderr, "%d checks failed\n", failures);
  return failures != 0;
}
