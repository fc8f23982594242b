/* The kernels that sort, search, select and suppress, on random bytes in buffers of exactly the
 * size that their signatures say: no access outside of them (under a sanitizer), and results in
 * order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/kernels/order.h"
#include "generated/nvm_dtype.h"
#include "nvm_kernel.h"

enum { OPERANDS = 8, ROUNDS = 40, DIMS = 16 };

#define REQUIRE(condition)                                            \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static uint64_t state = 12345;

static uint64_t draw(uint64_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (state >> 33) % below;
}

static nvm_status fail(const nvm_kernel_ctx *ctx, nvm_status code, int32_t operand, int64_t index,
                       int64_t bound) {
  (void)ctx, (void)operand, (void)index, (void)bound;
  return code;
}

static int polls, stop_at;

static nvm_status poll(const nvm_kernel_ctx *ctx) {
  (void)ctx;
  return ++polls == stop_at ? NVM_CANCELLED : NVM_OK;
}

static const nvm_kernel_ctx context = {NVM_KERNEL_ABI, sizeof(nvm_kernel_ctx), fail, poll, NULL};

typedef struct call {
  const nvm_c_kernel *kernel;
  int dtype;
  int64_t dims[DIMS];
  void *bufs[OPERANDS];
  int64_t sizes[OPERANDS]; /* elements */
} call;

static void open_call(call *c, const char *row, int dtype, const int64_t *dims, int count) {
  char name[64];
  snprintf(name, sizeof name, "%s_%s", row, nvm_dtypes[dtype].name);
  memset(c, 0, sizeof *c);
  c->kernel = nvm_c_kernel_find(name, strlen(name));
  c->dtype = dtype;
  REQUIRE(c->kernel);
  memcpy(c->dims, dims, (size_t)count * sizeof *dims);
  const nvm_signature *sig = c->kernel->signature;
  REQUIRE(count == sig->n_dims + sig->n_attrs);
  for (int i = 0; i < sig->n_operands; i++) {
    const nvm_operand *operand = &sig->operands[i];
    int64_t size = 1;
    for (int a = 0; a < operand->rank; a++)
      size *= operand->axes[a].kind == NVM_AXIS_DIM ? dims[operand->axes[a].value]
                                                    : operand->axes[a].value;
    const size_t bytes = (size_t)size * nvm_dtypes[operand->dtype].itemsize;
    c->sizes[i] = size;
    c->bufs[i] = malloc(bytes ? bytes : 1);
    REQUIRE(c->bufs[i]);
    /* Few different elements now and then, so that there are equals. */
    const uint64_t below = draw(2) ? 256 : 3;
    for (size_t k = 0; k < bytes; k++) ((uint8_t *)c->bufs[i])[k] = (uint8_t)draw(below);
    if (operand->dtype == NVM_DTYPE_BOOL)
      for (size_t k = 0; k < bytes; k++) ((uint8_t *)c->bufs[i])[k] &= 1;
  }
}

static nvm_status run(call *c) { return c->kernel->fn(&context, c->bufs, c->dims); }

static void close_call(call *c) {
  for (int i = 0; i < OPERANDS; i++) free(c->bufs[i]);
}

static int64_t draw_size(void) {
  static const int64_t sizes[] = {0, 1, 2, 3, 48, 49, 300};
  return sizes[draw(7)];
}

static uint64_t key(const call *c, int operand, int64_t i) {
  return nvm_order_key(c->dtype, c->bufs[operand], i);
}

/* Places in order, each once; equals in their order. */
static void check_order(const call *c, int64_t start, int64_t inner, int64_t axis, int64_t k,
                        int ascend, const int32_t *places, int64_t out) {
  uint8_t *seen = calloc((size_t)axis + 1, 1);
  REQUIRE(seen);
  for (int64_t r = 0; r < k; r++) {
    const int32_t place = places[out + r * inner];
    REQUIRE(place >= 0 && place < axis && !seen[place]);
    seen[place] = 1;
    if (r == 0) continue;
    const int32_t before = places[out + (r - 1) * inner];
    const uint64_t a = key(c, 0, start + before * inner), b = key(c, 0, start + place * inner);
    REQUIRE(a == b ? before < place : (a < b) == ascend);
  }
  for (int64_t i = 0; k > 0 && i < axis; i++) { /* what is left out comes behind */
    if (seen[i]) continue;
    const uint64_t a = key(c, 0, start + places[out + (k - 1) * inner] * inner);
    const uint64_t b = key(c, 0, start + i * inner);
    REQUIRE(a == b || (a < b) == ascend);
  }
  free(seen);
}

static void test_topk(int dtype) {
  static const char *const rows[] = {"topk_indices", "topk_values", "topk", "topk64",
                                     "topk_indices64"};
  const int64_t axis = draw_size(), k = draw(3) ? axis : (int64_t)draw((uint64_t)axis / 8 + 1);
  const int64_t dims[] = {(int64_t)draw(3), axis, 1 + (int64_t)draw(3), k, (int64_t)draw(2)};
  for (int row = 0; row < 5; row++) {
    call c;
    open_call(&c, rows[row], dtype, dims, 5);
    REQUIRE(run(&c) == NVM_OK);
    for (int64_t o = 0; row == 0 && o < dims[0]; o++)
      for (int64_t i = 0; i < dims[2]; i++)
        check_order(&c, o * axis * dims[2] + i, dims[2], axis, k, dims[4] != 0, c.bufs[1],
                    o * k * dims[2] + i);
    c.dims[3] = axis + 1;
    REQUIRE(run(&c) == NVM_SHAPE_MISMATCH);
    close_call(&c);
  }
}

static void test_unique(int dtype) {
  const int64_t dims[] = {draw_size(), (int64_t)draw(2)};
  call c;
  open_call(&c, draw(2) ? "unique_counts" : "unique", dtype, dims, 2);
  REQUIRE(run(&c) == NVM_OK);
  const int32_t *first = c.bufs[2], *inverse = c.bufs[3], *number = c.bufs[4];
  REQUIRE(c.dims[2] == number[0] && number[0] <= dims[0]);
  for (int64_t i = 0; i < dims[0]; i++) {
    REQUIRE(inverse[i] >= 0 && inverse[i] < number[0] && first[inverse[i]] <= i);
    REQUIRE(key(&c, 0, i) == key(&c, 1, inverse[i]));
  }
  for (int64_t g = 1; g < number[0]; g++)
    REQUIRE(dims[1] ? key(&c, 1, g - 1) < key(&c, 1, g) : first[g - 1] < first[g]);
  close_call(&c);
}

static void test_search(int dtype) {
  const int64_t dims[] = {(int64_t)draw(3), draw_size(), draw_size(), (int64_t)draw(2)};
  for (int wide = 0; wide < 2; wide++) {
    call c;
    open_call(&c, wide ? "searchsorted64" : "searchsorted", dtype, dims, 4);
    REQUIRE(run(&c) == NVM_OK); /* rows are not sorted: any place, but one inside */
    for (int64_t i = 0; !wide && i < c.sizes[2]; i++)
      REQUIRE(((int32_t *)c.bufs[2])[i] >= 0 && ((int32_t *)c.bufs[2])[i] <= dims[1]);
    close_call(&c);
  }
  const int64_t d0 = draw_size(), d1 = (int64_t)draw(4);
  const int64_t shape[] = {d0 * d1, 2, d0, d1, 1, 1, 1, 1, 1, 1};
  call c;
  open_call(&c, "argwhere", dtype, shape, 10);
  REQUIRE(run(&c) == NVM_OK);
  const int64_t found = c.dims[10];
  const int32_t *out = c.bufs[1];
  for (int64_t r = 0; r < found; r++) REQUIRE(out[2 * r] < d0 && out[2 * r + 1] < d1);
  c.dims[1] = 9;
  REQUIRE(run(&c) == NVM_KERNEL_ERROR);
  c.dims[1] = 1;
  REQUIRE(run(&c) == (d0 == d0 * d1 ? NVM_OK : NVM_SHAPE_MISMATCH));
  close_call(&c);
}

static void test_vision(int dtype) {
  const int64_t boxes = draw_size();
  const int64_t plain[] = {(int64_t)draw(3), boxes, 6, (int64_t)draw(2) - 1, 1};
  call c;
  open_call(&c, "get_valid_counts", dtype, plain, 5);
  REQUIRE(run(&c) == NVM_OK);
  for (int64_t b = 0; b < plain[0]; b++) REQUIRE(((int32_t *)c.bufs[2])[b] <= boxes);
  c.dims[4] = 6;
  REQUIRE(run(&c) == NVM_INDEX_OUT_OF_RANGE);
  close_call(&c);
  const int64_t dims[] = {(int64_t)draw(3),     boxes, 6, (int64_t)draw(2),
                          (int64_t)draw(9) - 1, 2,     1, (int64_t)draw(2) - 1,
                          (int64_t)draw(2)};
  for (int row = 0; row < 2; row++) {
    open_call(&c, row ? "nms_boxes" : "nms_indices", dtype, dims, 9);
    int32_t *valid = c.bufs[1];
    for (int64_t b = 0; b < dims[0]; b++) valid[b] = (int32_t)draw((uint64_t)boxes + 1);
    *(int32_t *)c.bufs[3] = (int32_t)draw(5) - 1;
    *(float *)c.bufs[4] = (float)draw(4) / 4;
    REQUIRE(run(&c) == NVM_OK);
    c.dims[5] = 3;
    REQUIRE(run(&c) == NVM_INDEX_OUT_OF_RANGE);
    c.dims[5] = 2;
    if (dims[0]) {
      valid[0] = (int32_t)boxes + 1;
      REQUIRE(run(&c) == NVM_INDEX_OUT_OF_RANGE);
    }
    close_call(&c);
  }
}

/* A long sort asks whether to go on, and stops. */
static void test_cancel(void) {
  const int64_t dims[] = {1, 1 << 20, 1, 1 << 20, 1};
  call c;
  open_call(&c, "topk_values", NVM_DTYPE_FLOAT64, dims, 5);
  polls = 0, stop_at = 3;
  REQUIRE(run(&c) == NVM_CANCELLED && polls == 3);
  stop_at = 0;
  close_call(&c);
}

int main(void) {
  for (int round = 0; round < ROUNDS; round++) {
    for (int dtype = 0; dtype < (int)NVM_DTYPE_COUNT; dtype++) {
      test_topk(dtype);
      test_unique(dtype);
      test_search(dtype);
      if (nvm_dtypes[dtype].is_float) test_vision(dtype);
    }
  }
  test_cancel();
  return 0;
}
