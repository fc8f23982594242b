/* The device "vta" on hostile code: blobs with bytes and instructions changed are refused or run,
 * with typed errors, and touch nothing but their operands. The sanitizers are the judges. SEEDS=n
 * in the environment runs more; a failing seed is printed. */
#include "harness.h"
#include "nvm_device.h"
#include "vta_isa.h"

enum { MAX_BLOB = 4096, CHANNELS = 5, OUTPUTS = 6, ROWS = 7, BLOCK = 4 };

static uint64_t state;
static uint32_t roll(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

/* --- a msgpack writer --- */
typedef struct blob {
  uint8_t bytes[MAX_BLOB];
  size_t size;
} blob;

static void put(blob *b, const void *data, size_t size) {
  memcpy(b->bytes + b->size, data, size);
  b->size += size;
}
static void put_byte(blob *b, uint32_t byte) { put(b, &(uint8_t){(uint8_t)byte}, 1); }
static void put_int(blob *b, uint32_t value) {
  const uint8_t bytes[] = {0xce, (uint8_t)(value >> 24), (uint8_t)(value >> 16),
                           (uint8_t)(value >> 8), (uint8_t)value};
  put(b, bytes, sizeof bytes);
}
static void put_text(blob *b, const char *text) {
  put_byte(b, 0xa0 | (uint32_t)strlen(text));
  put(b, text, strlen(text));
}
static void put_bin(blob *b, const void *data, size_t size) {
  const uint8_t head[] = {0xc5, (uint8_t)(size >> 8), (uint8_t)size};
  put(b, head, sizeof head);
  put(b, data, size);
}

/* --- a program: y = x times a weight of ones, 4 channels a block; 3 rows a trip --- */
typedef struct stream {
  uint64_t words[16][2];
  uint16_t marks[16];
  size_t count;
} stream;

enum { POP_PREV = 1 << 3, POP_NEXT = 1 << 4, PUSH_PREV = 1 << 5, PUSH_NEXT = 1 << 6 };
enum { NOTHING = 0x7FFF, ALL_ROWS = 0x8000, TRIP = 3, IN_BLOCKS = 2, OUT_BLOCKS = 2 };

static void add(stream *s, uint64_t low, uint64_t high, uint32_t mark) {
  s->words[s->count][0] = low;
  s->words[s->count][1] = high;
  s->marks[s->count++] = (uint16_t)mark;
}

static uint64_t transfer(uint32_t opcode, uint32_t memory, uint32_t tokens) {
  return opcode | tokens | memory << 7;
}
static uint64_t rows_of(uint32_t y, uint32_t x, uint32_t stride) {
  return y | (uint64_t)x << 16 | (uint64_t)stride << 32;
}
static uint64_t loops(uint32_t opcode, uint32_t tokens, uint32_t end, uint32_t out, uint32_t in) {
  return opcode | tokens | (uint64_t)end << 21 | (uint64_t)out << 35 | (uint64_t)in << 49;
}

static void write_streams(stream *prologue, stream *body, stream *epilogue) {
  *prologue = *body = *epilogue = (stream){.count = 0};
  add(prologue, transfer(NVM_VTA_LOAD, NVM_VTA_WGT, 0), rows_of(1, 4, 4), 1);
  add(prologue, NVM_VTA_GEMM | PUSH_PREV, 0, NOTHING);
  add(prologue, transfer(NVM_VTA_STORE, NVM_VTA_OUT, PUSH_PREV), 0, NOTHING);
  add(body, transfer(NVM_VTA_LOAD, NVM_VTA_INP, POP_NEXT | PUSH_NEXT),
      rows_of(TRIP, IN_BLOCKS, IN_BLOCKS), 0 | ALL_ROWS);
  add(body, loops(NVM_VTA_GEMM, POP_NEXT, 1, TRIP, OUT_BLOCKS) | 1 << 7, OUT_BLOCKS | 1 << 11,
      0 | ALL_ROWS);
  add(body, loops(NVM_VTA_GEMM, POP_PREV | PUSH_PREV | PUSH_NEXT, 2, TRIP, OUT_BLOCKS),
      OUT_BLOCKS | 1 << 11 | (uint64_t)IN_BLOCKS << 22 | (uint64_t)IN_BLOCKS << 54, 1 | ALL_ROWS);
  add(body, transfer(NVM_VTA_STORE, NVM_VTA_OUT, POP_PREV | PUSH_PREV),
      rows_of(TRIP, OUT_BLOCKS, OUT_BLOCKS), 2 | ALL_ROWS);
  add(epilogue, transfer(NVM_VTA_LOAD, NVM_VTA_INP, POP_NEXT), 0, NOTHING);
  add(epilogue, NVM_VTA_GEMM | POP_NEXT, 0, NOTHING);
  add(epilogue, NVM_VTA_FINISH, 0, NOTHING);
}

static void put_stream(blob *b, const stream *s) {
  put_bin(b, s->words, s->count * sizeof *s->words);
  put_bin(b, s->marks, s->count * sizeof *s->marks);
}

/* Operands: x (rows, 5), y (rows, 6), x in blocks (rows, 8), y in blocks (rows, 8). */
static void put_layout(blob *b, uint32_t from, uint32_t to, uint32_t channels, int to_blocks) {
  put_byte(b, 0x99);
  put_byte(b, 0xc2);
  put_int(b, 0);
  put_int(b, 1);
  put_int(b, from);
  put_int(b, to);
  put_int(b, channels);
  put_int(b, 1);
  put_byte(b, 0xc2);
  put_byte(b, to_blocks ? 0xc3 : 0xc2);
}

static void put_symbol(blob *b, uint32_t operand, uint32_t stride) {
  put_byte(b, 0x93);
  put_int(b, operand);
  put_int(b, 0);
  put_int(b, stride);
}

/* changed: how many bits of instructions are flipped. */
static void write_blob(blob *b, uint32_t changed) {
  static const uint32_t config[] = {0, 2, 2, 4, 7, 8, 8, 8, 16};
  uint8_t ones[64];
  memset(ones, 1, sizeof ones);
  const uint32_t reset[] = {0}, product[] = {0, 1 << 11 | 1 << 22};
  stream parts[3];
  write_streams(&parts[0], &parts[1], &parts[2]);
  for (uint32_t i = 0; i < changed; i++) {
    stream *s = &parts[roll(3)];
    s->words[roll((uint32_t)s->count)][roll(2)] ^= UINT64_C(1) << roll(64);
  }
  b->size = 0;
  put_byte(b, 0x85);
  put_text(b, "format");
  put_int(b, 1);
  put_text(b, "config");
  put_byte(b, 0x99);
  for (size_t i = 0; i < COUNT(config); i++) put_int(b, config[i]);
  put_text(b, "constants");
  put_bin(b, ones, sizeof ones);
  put_text(b, "micro_kernels");
  put_byte(b, 0x92);
  put_bin(b, reset, sizeof reset);
  put_bin(b, product, sizeof product);
  put_text(b, "steps");
  put_byte(b, 0x93);
  put_layout(b, 0, 2, CHANNELS, 1);
  put_byte(b, 0x9b);
  put_byte(b, 0xc3);
  put_int(b, 0);
  put_int(b, 1);
  put_int(b, TRIP);
  put_byte(b, 0x93);
  put_symbol(b, 2, TRIP * IN_BLOCKS * BLOCK);
  put_symbol(b, 0xFFFF, 0);
  put_symbol(b, 3, TRIP * OUT_BLOCKS * BLOCK);
  for (int i = 0; i < 3; i++) put_stream(b, &parts[i]);
  put_layout(b, 3, 1, OUTPUTS, 0);
}

/* --- a call --- */
static nvm_status no_poll(const nvm_kernel_ctx *ctx) {
  (void)ctx;
  return NVM_OK;
}
static nvm_status limited_poll(const nvm_kernel_ctx *ctx) {
  (void)ctx;
  static uint32_t calls;
  return ++calls % 64 == 0 ? NVM_TIME_LIMIT : NVM_OK;
}

static const nvm_operand operands[] = {
    {NVM_DTYPE_INT8, NVM_ROLE_IN, 2, 0, {{NVM_AXIS_DIM, 0, 0}, {NVM_AXIS_CONST, 0, CHANNELS}}},
    {NVM_DTYPE_INT8, NVM_ROLE_OUT, 2, 0, {{NVM_AXIS_DIM, 0, 0}, {NVM_AXIS_CONST, 0, OUTPUTS}}},
    {NVM_DTYPE_INT8, NVM_ROLE_SCRATCH, 2, 0, {{NVM_AXIS_DIM, 0, 0}, {NVM_AXIS_CONST, 0, 8}}},
    {NVM_DTYPE_INT8, NVM_ROLE_SCRATCH, 2, 0, {{NVM_AXIS_DIM, 0, 0}, {NVM_AXIS_CONST, 0, 8}}}};
static const nvm_signature signature = {
    .n_operands = 4, .n_in = 1, .n_out = 1, .n_scratch = 2, .n_dims = 1, .operands = operands};

/* Load, find, launch; `offset`: bytes by which operands lie askew. out_ran: the launch was OK. */
static void call_blob(const blob *b, size_t offset, nvm_status (*poll)(const nvm_kernel_ctx *),
                      int64_t rows, int must_run, int *out_ran) {
  const nvm_device_vtable *vtable = nvm_device_find("vta");
  static blob section;
  section.size = 0;
  put_byte(&section, 0x81);
  put_int(&section, 3);
  put_bin(&section, b->bytes, b->size);
  uint8_t *code = malloc(section.size); /* of its own, so that a sanitizer sees what leaves it */
  memcpy(code, section.bytes, section.size);
  nvm_device *device;
  CHECK_STATUS(vtable->open(0, &device), NVM_OK);
  void *module, *memory;
  const nvm_device_section given = {5, "vta", code, section.size};
  CHECK_STATUS(vtable->load_module(device, &given, &module), NVM_OK);
  const void *kernel = NULL;
  nvm_status status = vtable->find_kernel(device, module, 3, "k", &signature, &kernel);
  CHECK(status == NVM_OK || status == NVM_INVALID_EXECUTABLE || status == NVM_UNSUPPORTED_VERSION);
  *out_ran = 0;
  if (status == NVM_OK) {
    CHECK_STATUS(vtable->alloc(device, 4096, 64, &memory), NVM_OK);
    int8_t x[ROWS][CHANNELS], y[ROWS][OUTPUTS];
    for (int i = 0; i < ROWS * CHANNELS; i++) x[i / CHANNELS][i % CHANNELS] = (int8_t)(i - 9);
    char *at = (char *)memory + offset;
    CHECK_STATUS(vtable->copy_from_host(device, at, 0, x, (size_t)rows * CHANNELS), NVM_OK);
    void *bufs[] = {at, at + 512, at + 1024, at + 2048};
    const nvm_kernel_ctx ctx = {.abi = NVM_KERNEL_ABI, .size = sizeof ctx, .poll = poll};
    int64_t dims[] = {rows};
    status = vtable->launch(device, &ctx, NULL, kernel, bufs, dims);
    CHECK(status == NVM_OK || status == NVM_DEVICE_ERROR || status == NVM_TIME_LIMIT ||
          status == NVM_OPERAND_MISMATCH || status == NVM_DIM_OVERFLOW ||
          status == NVM_OUT_OF_MEMORY);
    *out_ran = status == NVM_OK;
    CHECK_STATUS(vtable->copy_to_host(device, y, at, 512, sizeof y), NVM_OK);
    for (int64_t r = 0; must_run && r < rows; r++)
      for (int o = 0; o < OUTPUTS; o++)
        CHECK(y[r][o] == (int8_t)(x[r][0] + x[r][1] + x[r][2] + x[r][3] + x[r][4]));
    vtable->free(device, memory, 4096);
  }
  if (must_run) CHECK_STATUS(status, NVM_OK);
  vtable->unload_module(device, module);
  vtable->close(device);
  free(code);
}

static void test_right_blobs(void) {
  blob b;
  int ran;
  write_blob(&b, 0);
  for (int64_t rows = 0; rows <= ROWS; rows++)
    for (size_t offset = 0; offset < 4; offset++) call_blob(&b, offset, no_poll, rows, 1, &ran);
}

static void test_changed_blobs(uint32_t seeds) {
  uint32_t ran = 0, runs = 0;
  for (uint32_t seed = 0; seed < seeds; seed++) {
    int before = failures, one;
    state = seed;
    blob b;
    uint32_t kind = roll(3);
    write_blob(&b, kind < 2 ? roll(4) : 0);
    for (uint32_t i = kind == 2 ? 1 + roll(3) : 0; i; i--) {
      size_t at = roll((uint32_t)b.size);
      b.bytes[at] = roll(2) ? (uint8_t)roll(256) : b.bytes[at] ^ (uint8_t)(1u << roll(8));
    }
    if (roll(16) == 0) b.size = roll((uint32_t)b.size);
    call_blob(&b, roll(2) ? 0 : roll(64), limited_poll, roll(ROWS + 1), 0, &one);
    ran += (uint32_t)one;
    runs++;
    if (failures > before) fprintf(stderr, "seed %u\n", seed);
  }
  CHECK(ran > runs / 8);
}

static void test_sections(void) {
  const nvm_device_vtable *vtable = nvm_device_find("vta");
  nvm_device *device;
  void *module;
  CHECK_STATUS(vtable->open(0, &device), NVM_OK);
  const nvm_device_section wrong = {4, "vta", "", 0}, empty = {5, "vta", "", 0},
                           none = {5, "vta", "\x80", 1},
                           twice = {5, "vta", "\x82\x03\xc4\x00\x03\xc4\x00", 7};
  CHECK_STATUS(vtable->load_module(device, &wrong, &module), NVM_UNSUPPORTED);
  CHECK_STATUS(vtable->load_module(device, &empty, &module), NVM_INVALID_EXECUTABLE);
  CHECK_STATUS(vtable->load_module(device, &twice, &module), NVM_INVALID_EXECUTABLE);
  CHECK_STATUS(vtable->load_module(device, &none, &module), NVM_OK);
  const void *code;
  CHECK_STATUS(vtable->find_kernel(device, module, 0, "k", &signature, &code), NVM_UNSUPPORTED);
  vtable->unload_module(device, module);
  void *memory;
  CHECK_STATUS(vtable->alloc(device, (size_t)1 << 40, 64, &memory), NVM_OUT_OF_MEMORY);
  char byte = 0;
  CHECK_STATUS(vtable->copy_to_host(device, &byte, &byte, 0, 1), NVM_DEVICE_ERROR);
  vtable->close(device);
}

int main(void) {
  const char *more = getenv("SEEDS");
  test_sections();
  test_right_blobs();
  test_changed_blobs(more ? (uint32_t)atoi(more) : 1000);
  return failures != 0;
}
