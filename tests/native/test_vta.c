/* The VTA simulator on hostile streams: any words run or fail with a typed error, and it works on.
 * The sanitizers are the judges. SEEDS=n in the environment runs more; a failing seed is printed.
 */
#include "harness.h"
#include "vta_sim.h"

enum { DRAM = 4096, MAX_STREAM = 40 };

static uint64_t state;
static uint64_t roll(uint64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % n;
}

/* Mostly small, so that streams get far; sometimes anything. */
static uint64_t number(uint32_t width) {
  uint64_t mask = (UINT64_C(1) << width) - 1;
  return (roll(12) == 0 ? roll(UINT64_C(1) << 31) : roll(5)) & mask;
}

typedef struct writer {
  uint64_t words[2];
  uint32_t at;
} writer;

static void put(writer *w, uint64_t value, uint32_t width) {
  w->words[w->at / 64] |= value << w->at % 64;
  w->at += width;
}

static void put_transfer(writer *w, uint32_t memory) {
  put(w, memory, 3);
  put(w, number(16), 16);
  put(w, number(32), 32);
  w->at = 64;
  put(w, number(16), 16);
  put(w, number(16), 16);
  put(w, number(16), 16);
  for (int i = 0; i < 4; i++) put(w, memory == NVM_VTA_OUT || roll(3) ? 0 : roll(16), 4);
}

static void put_loops(writer *w, uint32_t opcode) {
  put(w, opcode == NVM_VTA_GEMM && roll(2), 1);
  put(w, number(13), 13);
  put(w, number(14), 14);
  put(w, number(14), 14);
  put(w, number(14), 14);
  w->at = 64;
  for (int i = 0; i < 4; i++) put(w, number(11), 11);
  if (opcode == NVM_VTA_GEMM) {
    put(w, number(10), 10);
    put(w, number(10), 10);
  } else {
    put(w, roll(4), 3);
    put(w, roll(2), 1);
    put(w, roll(1 << 16), 16);
  }
}

static void random_instruction(uint64_t words[2]) {
  static const uint8_t loads[] = {NVM_VTA_UOP, NVM_VTA_WGT, NVM_VTA_INP, NVM_VTA_ACC, NVM_VTA_ACC8};
  writer w = {{0, 0}, 0};
  uint32_t opcode = roll(3) ? NVM_VTA_LOAD : (uint32_t)roll(5);
  if (opcode == NVM_VTA_FINISH) opcode = NVM_VTA_GEMM;
  put(&w, opcode, 3);
  put(&w, roll(10) == 0 ? roll(16) : 0, 4);
  if (opcode == NVM_VTA_LOAD) put_transfer(&w, loads[roll(sizeof loads)]);
  if (opcode == NVM_VTA_STORE) put_transfer(&w, NVM_VTA_OUT);
  if (opcode == NVM_VTA_GEMM || opcode == NVM_VTA_ALU) put_loops(&w, opcode);
  memcpy(words, w.words, sizeof w.words);
  if (roll(20) == 0) words[roll(2)] ^= UINT64_C(1) << roll(64);
}

static void run_stream(nvm_vta_simulator *simulator, uint32_t *ran) {
  uint64_t words[MAX_STREAM][2];
  size_t count = 1 + roll(MAX_STREAM - 1);
  for (size_t i = 0; i < count; i++) random_instruction(words[i]);
  words[count - 1][0] = NVM_VTA_FINISH;
  words[count - 1][1] = 0;
  nvm_vta_stats stats;
  nvm_status status = nvm_vta_simulator_run(simulator, words, count, 30000, &stats);
  CHECK(status == NVM_OK || status == NVM_DEVICE_ERROR);
  *ran += status == NVM_OK;
}

static void test_streams(uint32_t seeds) {
  static const nvm_vta_config configs[] = {{0, 2, 3, 6, 7, 9, 10, 8, 16},
                                           {1, 2, 2, 4, 5, 5, 6, 1, 0},
                                           {0, 4, 4, 15, 15, 18, 17, 8, 16},
                                           {4, 6, 6, 10, 12, 14, 14, 64, 1}};
  uint32_t ran = 0;
  for (uint32_t seed = 0; seed < seeds; seed++) {
    int before = failures;
    state = seed;
    uint8_t *dram = calloc(DRAM, 1); /* of its own, so that a sanitizer sees what leaves it */
    for (size_t i = 0; i < DRAM; i++) dram[i] = (uint8_t)(roll(3) ? 0 : roll(256));
    nvm_vta_simulator *simulator;
    CHECK_STATUS(nvm_vta_simulator_create(&configs[seed % COUNT(configs)], dram, DRAM, &simulator),
                 NVM_OK);
    for (int i = 0; i < 20; i++) run_stream(simulator, &ran);
    nvm_vta_simulator_destroy(simulator);
    free(dram);
    if (failures > before) fprintf(stderr, "seed %u\n", seed);
  }
  CHECK(ran > seeds / 4); /* some get to the end */
}

static uint32_t polls;
static nvm_status late(const nvm_kernel_ctx *ctx) {
  (void)ctx;
  return ++polls == 3 ? NVM_TIME_LIMIT : NVM_OK;
}

/* Transfers take time too, and may be millions. */
static void test_transfers_ask_whether_to_go_on(void) {
  const nvm_vta_config config = {0, 4, 4, 15, 15, 18, 17, 8, 16};
  const nvm_kernel_ctx ctx = {.abi = NVM_KERNEL_ABI, .size = sizeof ctx, .poll = late};
  static uint64_t loads[4096][2];
  for (size_t i = 0; i < COUNT(loads); i++) {
    loads[i][0] = NVM_VTA_LOAD | NVM_VTA_INP << 7;
    loads[i][1] = 1 | 1 << 16; /* a row of one entry */
  }
  uint8_t dram[64] = {0};
  const nvm_vta_window whole = {0, sizeof dram, 1};
  nvm_vta_sim *sim;
  CHECK_STATUS(nvm_vta_sim_create(&config, dram, sizeof dram, &sim), NVM_OK);
  nvm_vta_begin(sim, &whole, 1, &ctx, 0);
  CHECK_STATUS(nvm_vta_feed(sim, (const uint8_t *)loads, COUNT(loads)), NVM_TIME_LIMIT);
  CHECK(polls == 3);
  nvm_vta_begin(sim, &whole, 1, &ctx, 0);
  CHECK_STATUS(nvm_vta_feed(sim, (const uint8_t *)loads, COUNT(loads)), NVM_OK);
  nvm_vta_abandon(sim);
  nvm_vta_sim_destroy(sim);
}

static void test_configurations(void) {
  const nvm_vta_config good = {0, 4, 4, 15, 15, 18, 17, 8, 16};
  for (size_t field = 0; field < sizeof good / sizeof(uint32_t); field++) {
    nvm_vta_config bad = good;
    ((uint32_t *)&bad)[field] = UINT32_MAX - (uint32_t)field;
    uint8_t dram[16] = {0};
    nvm_vta_simulator *simulator;
    CHECK_STATUS(nvm_vta_simulator_create(&bad, dram, sizeof dram, &simulator),
                 NVM_INVALID_EXECUTABLE);
    CHECK_MESSAGE("vta configuration");
  }
}

int main(void) {
  const char *more = getenv("SEEDS");
  test_transfers_ask_whether_to_go_on();
  test_configurations();
  test_streams(more ? (uint32_t)atoi(more) : 200);
  return failures != 0;
}
