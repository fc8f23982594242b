/* External code on the host: the table of runtimes, what they may ask, libraries, and "blas". */
#include <math.h>
#include <pthread.h>

#include "call.h"
#include "harness.h"
#include "nvm_api.h"
#include "nvm_device.h"

static char library[4096]; /* external_library.so, beside this program */

/* --- the table of runtimes --- */

static nvm_status create(void *context, const void *blob, size_t size, const char *kernel,
                         const nvm_signature *signature, void **out_instance) {
  (void)blob, (void)size, (void)kernel, (void)signature;
  *out_instance = context;
  return NVM_OK;
}

static nvm_status run(void *instance, const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  (void)instance, (void)ctx, (void)bufs, (void)dims;
  return NVM_OK;
}

static void destroy(void *instance) { (void)instance; }

static const nvm_external_runtime fine = {
    .size = sizeof fine, .name = "fine", .create = create, .run = run, .destroy = destroy};

static void test_what_is_no_runtime(void) {
  nvm_external_runtime wrong = fine;
  CHECK_STATUS(nvm_external_register(NULL), NVM_INVALID_INPUT);
  wrong.size = 8;
  CHECK_STATUS(nvm_external_register(&wrong), NVM_INVALID_INPUT);
  CHECK_MESSAGE("size is 8");
  const char *const names[] = {NULL, "", "a,b", "a b", "\xc3\xa4", "null", "cpu"};
  for (size_t i = 0; i < COUNT(names); i++) {
    wrong = fine;
    wrong.name = names[i];
    CHECK_STATUS(nvm_external_register(&wrong), NVM_INVALID_INPUT);
  }
  CHECK_MESSAGE("is a device backend");
  wrong = fine;
  wrong.destroy = NULL;
  CHECK_STATUS(nvm_external_register(&wrong), NVM_INVALID_INPUT);
}

static void test_names(void) {
  const nvm_external_runtime *found = NULL;
  char text[64], name[] = "named.1", tiny[3];
  nvm_external_runtime made = fine;
  made.name = name;
  CHECK_STATUS(nvm_external_find("named.1", 0, &found), NVM_DEVICE_ERROR);
  CHECK_MESSAGE("\"named.1\", which is not registered; there are blas");
  CHECK_STATUS(nvm_external_find("named.1", 1, &found), NVM_OK);
  CHECK(!found);
  CHECK_STATUS(nvm_external_register(&made), NVM_OK);
  name[0] = 'x'; /* the name has been copied */
  CHECK_STATUS(nvm_external_find("named.1", 0, &found), NVM_OK);
  CHECK(found && found->context == NULL && strcmp(found->name, "named.1") == 0);
  name[0] = 'n';
  made.context = text;
  const nvm_external_runtime *older = found;
  CHECK_STATUS(nvm_external_register(&made), NVM_OK);
  CHECK_STATUS(nvm_external_find("named.1", 0, &found), NVM_OK);
  CHECK(found && found->context == text && older->context == NULL); /* VMs may still have it */
  CHECK(nvm_external_names(text, sizeof text) == strlen("blas, named.1"));
  CHECK(strcmp(text, "blas, named.1") == 0);
  CHECK(nvm_external_names(tiny, sizeof tiny) == strlen("blas, named.1") && !tiny[2]);
  CHECK(nvm_external_names(NULL, 0) == strlen("blas, named.1"));
  CHECK(nvm_external_unregister("named.1") && !nvm_external_unregister("named.1"));
  CHECK(!nvm_external_unregister("nobody"));
  CHECK_STATUS(nvm_external_find("named.1", 0, &found), NVM_DEVICE_ERROR);
}

static void *register_many(void *closure) {
  nvm_external_runtime made = fine;
  made.name = closure;
  for (int i = 0; i < 200; i++) {
    const nvm_external_runtime *found = NULL;
    char text[256];
    if (nvm_external_register(&made) != NVM_OK) return closure;
    if (nvm_external_find(made.name, 0, &found) != NVM_OK || found->create != create)
      return closure;
    nvm_external_names(text, sizeof text);
    nvm_external_unregister(made.name);
  }
  return NULL;
}

static void test_threads(void) {
  char names[4][4] = {"t.0", "t.1", "t.2", "t.3"};
  pthread_t threads[COUNT(names)];
  for (size_t i = 0; i < COUNT(names); i++)
    CHECK(pthread_create(&threads[i], NULL, register_many, names[i]) == 0);
  for (size_t i = 0; i < COUNT(names); i++) {
    void *wrong = NULL;
    CHECK(pthread_join(threads[i], &wrong) == 0 && !wrong);
  }
}

/* --- what runtimes ask --- */

static void test_operands(void) {
  const int64_t exprs[] = {NVM_DIM_REF, 0, NVM_DIM_CONST, 3, NVM_DIM_MUL, NVM_DIM_END};
  const nvm_operand operands[] = {
      {.dtype = NVM_DTYPE_FLOAT32,
       .role = NVM_ROLE_IN,
       .rank = 2,
       .axes = {{.kind = NVM_AXIS_DIM, .value = 0}, {.kind = NVM_AXIS_CONST, .value = 4}}},
      {.dtype = NVM_DTYPE_INT8,
       .role = NVM_ROLE_IN,
       .rank = 1,
       .axes = {{.kind = NVM_AXIS_DIM, .value = 0, .broadcast = 1}}},
      {.dtype = NVM_DTYPE_FLOAT64,
       .role = NVM_ROLE_OUT,
       .rank = 1,
       .axes = {{.kind = NVM_AXIS_EXPR, .value = 0}}},
      {.dtype = NVM_DTYPE_BOOL, .role = NVM_ROLE_SCRATCH, .rank = 0}};
  const nvm_signature signature = {.n_operands = 4,
                                   .n_in = 2,
                                   .n_out = 1,
                                   .n_scratch = 1,
                                   .n_dims = 1,
                                   .n_pitches = 1,
                                   .operands = operands,
                                   .exprs = exprs,
                                   .n_expr_words = COUNT(exprs)};
  nvm_external_operand found[4];
  int64_t dims[] = {5, 1};
  CHECK(nvm_external_operand_count(&signature) == 4 && nvm_external_dim_count(&signature) == 1);
  CHECK_STATUS(nvm_external_operands(&signature, dims, found), NVM_OK);
  CHECK(found[0].shape[0] == 5 && found[0].shape[1] == 4 && found[0].bytes == 80);
  CHECK(found[1].shape[0] == 1 && found[1].bytes == 1);
  CHECK(found[2].shape[0] == 15 && found[2].bytes == 120 && found[2].role == NVM_ROLE_OUT);
  CHECK(found[3].rank == 0 && found[3].bytes == 1 && found[3].role == NVM_ROLE_SCRATCH);
  dims[0] = INT64_MAX;
  CHECK_STATUS(nvm_external_operands(&signature, dims, found), NVM_DIM_OVERFLOW);
}

static void test_errors_of_runtimes(void) {
  CHECK_STATUS(nvm_external_fail(NVM_UNSUPPORTED, "not me"), NVM_UNSUPPORTED);
  CHECK_MESSAGE("not me");
  const int32_t odd[] = {0, -3, 12345};
  for (size_t i = 0; i < COUNT(odd); i++)
    CHECK_STATUS(nvm_external_fail(odd[i], NULL), NVM_KERNEL_ERROR);
}

/* --- libraries --- */

static void test_libraries(void) {
  const char *name = NULL;
  CHECK_STATUS(nvm_external_load("/nowhere/none.so", &name), NVM_FILE_ERROR);
  CHECK_STATUS(nvm_external_load("libm.so.6", &name), NVM_INVALID_INPUT);
  CHECK_MESSAGE("no function nvm_external_entry");
  CHECK_STATUS(nvm_external_load(library, &name), NVM_OK);
  CHECK(name && strcmp(name, "doubling") == 0);
  if (!name) return;
  const nvm_external_runtime *found = NULL;
  const nvm_operand operands[] = {{.dtype = NVM_DTYPE_FLOAT32,
                                   .role = NVM_ROLE_IN,
                                   .rank = 1,
                                   .axes = {{.kind = NVM_AXIS_DIM, .value = 0}}},
                                  {.dtype = NVM_DTYPE_FLOAT32,
                                   .role = NVM_ROLE_OUT,
                                   .rank = 1,
                                   .axes = {{.kind = NVM_AXIS_DIM, .value = 0}}}};
  const nvm_signature signature = {
      .n_operands = 2, .n_in = 1, .n_out = 1, .n_dims = 1, .operands = operands};
  void *instance = NULL;
  CHECK_STATUS(nvm_external_find("doubling", 0, &found), NVM_OK);
  CHECK_STATUS(found->create(NULL, "abcd", 4, "k", &signature, &instance), NVM_INVALID_EXECUTABLE);
  CHECK_MESSAGE("three bytes");
  CHECK_STATUS(found->create(NULL, "abc", 3, "k", &signature, &instance), NVM_OK);
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, 1);
  float *x = malloc(3 * sizeof *x), *y = malloc(3 * sizeof *y); /* of their exact sizes */
  int64_t dims[] = {3};
  void *const bufs[] = {x, y};
  if (x && y && instance) {
    x[0] = 1, x[1] = 2, x[2] = 3;
    CHECK_STATUS(found->run(instance, &call.ctx, bufs, dims), NVM_OK);
    CHECK(y[0] == 2 && y[2] == 6);
    x[2] = -1;
    CHECK_STATUS(found->run(instance, &call.ctx, bufs, dims), NVM_INDEX_OUT_OF_RANGE);
    dims[0] = 0;
    CHECK_STATUS(found->run(instance, &call.ctx, bufs, dims), NVM_OK);
  }
  free(x);
  free(y);
  found->destroy(instance);
}

/* --- blas --- */

typedef struct product {
  int64_t m, k, n;
  int bias, activation, threads;
} product;

static nvm_axis fixed(int64_t value) { return (nvm_axis){.kind = NVM_AXIS_CONST, .value = value}; }

static nvm_operand matrix(uint8_t role, nvm_axis rows, int64_t columns) {
  return (nvm_operand){
      .dtype = NVM_DTYPE_FLOAT32, .role = role, .rank = 2, .axes = {rows, fixed(columns)}};
}

/* x (?m, k), w (n, k), bias (n) if any, out (?m, n) */
static nvm_signature signature_of(const product *p, nvm_operand operands[4]) {
  const nvm_axis m = {.kind = NVM_AXIS_DIM, .value = 0};
  const uint16_t n_in = (uint16_t)(2 + p->bias);
  operands[0] = matrix(NVM_ROLE_IN, m, p->k);
  operands[1] = matrix(NVM_ROLE_IN, fixed(p->n), p->k);
  operands[2] = (nvm_operand){
      .dtype = NVM_DTYPE_FLOAT32, .role = NVM_ROLE_IN, .rank = 1, .axes = {fixed(p->n)}};
  operands[n_in] = matrix(NVM_ROLE_OUT, m, p->n);
  return (nvm_signature){.n_operands = (uint16_t)(n_in + 1),
                         .n_in = n_in,
                         .n_out = 1,
                         .n_dims = 1,
                         .operands = operands};
}

/* Numbers of 1 / 8, so that sums are exact in any order. */
static float *numbers(int64_t count, int seed) {
  float *made = malloc((size_t)(count ? count : 1) * sizeof *made);
  for (int64_t i = 0; made && i < count; i++) made[i] = (float)((i * 7 + seed) % 17 - 8) / 8;
  return made;
}

static float activated(const product *p, float value) {
  if (p->activation == 1) return value > 0 ? value : 0;
  return value;
}

static void check_product(const product *p, const float *x, const float *w, const float *bias,
                          const float *out) {
  int wrong = 0;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float sum = p->bias ? bias[j] : 0;
      for (int64_t l = 0; l < p->k; l++) sum += x[i * p->k + l] * w[j * p->k + l];
      const float want = activated(p, sum), got = out[i * p->n + j];
      if (p->activation > 1) /* tanh, sigmoid, gelu: that they are there and finite */
        wrong += !isfinite(got);
      else
        wrong += got != want;
    }
  CHECK(wrong == 0);
}

static void multiply(const nvm_external_runtime *blas, product p) {
  nvm_operand operands[4];
  const nvm_signature signature = signature_of(&p, operands);
  const uint8_t blob[8] = {'N', 'V', 'B', 'L', 1, (uint8_t)p.activation, (uint8_t)p.bias, 0};
  void *instance = NULL;
  CHECK_STATUS(blas->create(blas->context, blob, sizeof blob, "dense", &signature, &instance),
               NVM_OK);
  if (!instance) return;
  float *x = numbers(p.m * p.k, 1), *w = numbers(p.n * p.k, 5), *bias = numbers(p.n, 3);
  float *out = numbers(p.m * p.n, 9);
  void *bufs[4] = {x, w, bias, out};
  bufs[signature.n_in] = out;
  int64_t dims[] = {p.m};
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, p.threads);
  CHECK_STATUS(blas->run(instance, &call.ctx, bufs, dims), NVM_OK);
  check_product(&p, x, w, bias, out);
  free(x);
  free(w);
  free(bias);
  free(out);
  blas->destroy(instance);
}

static void test_products(const nvm_external_runtime *blas) {
  const int64_t rows[] = {0, 1, 4, 5, 33}, depths[] = {0, 1, 24}, units[] = {1, 16, 20};
  for (size_t m = 0; m < COUNT(rows); m++)
    for (size_t k = 0; k < COUNT(depths); k++)
      for (size_t n = 0; n < COUNT(units); n++)
        for (int bias = 0; bias < 2; bias++)
          multiply(blas, (product){rows[m], depths[k], units[n], bias, (int)(m + k + n) % 5, 1});
  multiply(blas, (product){64, 256, 300, 1, 1, 4}); /* shared by threads, blocks of columns */
  multiply(blas, (product){2, 4096, 515, 0, 0, 4});
}

static void test_blobs(const nvm_external_runtime *blas) {
  const product p = {.m = 2, .k = 3, .n = 4, .bias = 1};
  nvm_operand operands[4];
  nvm_signature signature = signature_of(&p, operands);
  const uint8_t blobs[][8] = {{'N', 'V', 'B', 'L', 1, 5, 1, 0},
                              {'N', 'V', 'B', 'L', 1, 0, 2, 0},
                              {'N', 'V', 'B', 'L', 1, 0, 1, 1},
                              {'N', 'V', 'B', 'L', 2, 0, 1, 0},
                              {'n', 'v', 'b', 'l', 1, 0, 1, 0}};
  const uint8_t good[] = {'N', 'V', 'B', 'L', 1, 0, 1, 0};
  void *instance = NULL;
  for (size_t i = 0; i < COUNT(blobs); i++)
    CHECK_STATUS(blas->create(NULL, blobs[i], 8, "k", &signature, &instance),
                 NVM_INVALID_EXECUTABLE);
  for (size_t size = 0; size < 8; size++) {
    uint8_t *cut = malloc(size ? size : 1);
    if (cut) memcpy(cut, good, size);
    CHECK_STATUS(blas->create(NULL, cut, size, "k", &signature, &instance), NVM_INVALID_EXECUTABLE);
    free(cut);
  }
  signature.n_in = 2;
  CHECK_STATUS(blas->create(NULL, good, 8, "k", &signature, &instance), NVM_INVALID_EXECUTABLE);
  signature.n_in = 3;
  operands[1].dtype = NVM_DTYPE_FLOAT64;
  CHECK_STATUS(blas->create(NULL, good, 8, "k", &signature, &instance), NVM_INVALID_EXECUTABLE);
  operands[1].dtype = NVM_DTYPE_FLOAT32;
  operands[0].rank = 0;
  CHECK_STATUS(blas->create(NULL, good, 8, "k", &signature, &instance), NVM_INVALID_EXECUTABLE);
  CHECK(!instance);
}

/* A signature may say sizes that are no product: nothing is read or written then. */
static void test_sizes(const nvm_external_runtime *blas) {
  const product p = {.m = 2, .k = 3, .n = 4, .bias = 1};
  const uint8_t good[] = {'N', 'V', 'B', 'L', 1, 0, 1, 0};
  for (int which = 0; which < 4; which++) {
    nvm_operand operands[4];
    const nvm_signature signature = signature_of(&p, operands);
    operands[which].axes[operands[which].rank - 1].value += 1;
    void *instance = NULL;
    CHECK_STATUS(blas->create(NULL, good, 8, "k", &signature, &instance), NVM_OK);
    if (!instance) continue;
    void *const bufs[4] = {NULL, NULL, NULL, NULL};
    int64_t dims[] = {2};
    nvm_call call;
    nvm_call_init(&call, NULL, NULL, 1);
    CHECK_STATUS(blas->run(instance, &call.ctx, bufs, dims), NVM_OPERAND_MISMATCH);
    blas->destroy(instance);
  }
}

static void test_blas(void) {
  const nvm_external_runtime *blas = NULL;
  const product p = {.m = 2, .k = 3, .n = 4};
  const uint8_t good[] = {'N', 'V', 'B', 'L', 1, 0, 0, 0};
  nvm_operand operands[4];
  const nvm_signature signature = signature_of(&p, operands);
  void *instance = NULL;
  CHECK_STATUS(nvm_external_find("blas", 0, &blas), NVM_OK);
  setenv("NIMBLEVM_BLAS", "/nowhere/none.so", 1);
  CHECK_STATUS(blas->create(NULL, good, 8, "k", &signature, &instance), NVM_DEVICE_ERROR);
  CHECK_MESSAGE("NIMBLEVM_BLAS; it says /nowhere/none.so");
  unsetenv("NIMBLEVM_BLAS");
  nvm_blas_library(library);
  test_products(blas);
  test_blobs(blas);
  test_sizes(blas);
}

int main(int argc, char **argv) {
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  snprintf(library, sizeof library, "%.*sexternal_library.so",
           slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
  test_what_is_no_runtime();
  test_names();
  test_threads();
  test_operands();
  test_errors_of_runtimes();
  test_libraries();
  test_blas();
  return failures != 0;
}
