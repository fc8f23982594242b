/* Reads and checks external code for VTA. */
#include <string.h>

#include "alloc.h"
#include "msgpack.h"
#include "vta_program.h"

enum { FORMAT = 1, MAX_MICRO_KERNELS = 4096, MAX_STREAM = 1 << 22, MAX_CHANNELS = 1 << 24 };

/* What a program is read against. */
typedef struct reader {
  nvm_mp mp;
  const nvm_signature *signature;
  nvm_vta_program *program;
  uint32_t run;   /* number of the run that is read, from 1 */
  uint32_t *seen; /* by micro-kernel: the last run that names it */
} reader;

static nvm_status read_operand(reader *r, const char *what, uint32_t *out_operand) {
  return nvm_mp_u32(&r->mp, what, r->signature->n_operands - 1u, out_operand);
}

static nvm_status read_config(reader *r) {
  nvm_vta_config *config = &r->program->config;
  uint32_t *numbers = (uint32_t *)config;
  NVM_TRY(nvm_mp_key(&r->mp, "config"));
  NVM_TRY(nvm_mp_tuple(&r->mp, "config", sizeof *config / sizeof *numbers));
  for (size_t i = 0; i < sizeof *config / sizeof *numbers; i++)
    NVM_TRY(nvm_mp_u32(&r->mp, "a number of config", UINT32_MAX, &numbers[i]));
  nvm_vta_shape shape;
  return nvm_vta_shape_of(config, &shape);
}

static nvm_status read_micro_kernels(reader *r) {
  nvm_vta_program *program = r->program;
  uint32_t count;
  NVM_TRY(nvm_mp_key(&r->mp, "micro_kernels"));
  NVM_TRY(nvm_mp_array(&r->mp, "micro_kernels", 2, &count));
  if (count > MAX_MICRO_KERNELS) return nvm_mp_fail(&r->mp, "%u micro-kernels", count);
  program->micro_kernels = nvm_calloc((count + 1u) * sizeof *program->micro_kernels);
  r->seen = nvm_calloc((count + 1u) * sizeof *r->seen);
  if (!program->micro_kernels || !r->seen)
    NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta program");
  program->n_micro_kernels = count;
  for (uint32_t i = 0; i < count; i++) {
    size_t size;
    NVM_TRY(nvm_mp_bin(&r->mp, "a micro-kernel", &program->micro_kernels[i].words, &size));
    if (size % 4 || size == 0 || size > (4u << NVM_VTA_UOP_BITS))
      return nvm_mp_fail(&r->mp, "a micro-kernel of %zu bytes", size);
    program->micro_kernels[i].count = (uint32_t)(size / 4);
  }
  return NVM_OK;
}

static nvm_status read_layout(reader *r, nvm_vta_layout *layout) {
  NVM_TRY(read_operand(r, "source of a layout step", &layout->src));
  NVM_TRY(read_operand(r, "destination of a layout step", &layout->dst));
  NVM_TRY(nvm_mp_u32(&r->mp, "channels", MAX_CHANNELS, &layout->channels));
  NVM_TRY(nvm_mp_u32(&r->mp, "positions", UINT32_MAX, &layout->positions));
  NVM_TRY(nvm_mp_bool(&r->mp, "channels_last", &layout->channels_last));
  NVM_TRY(nvm_mp_bool(&r->mp, "to_blocks", &layout->to_blocks));
  if (r->signature->operands[layout->dst].role == NVM_ROLE_IN)
    return nvm_mp_fail(&r->mp, "a layout step writes input %u", layout->dst);
  return NVM_OK;
}

static int has_micro_ops(const uint8_t *instruction) {
  uint8_t opcode = instruction[0] & 7u;
  return opcode == NVM_VTA_GEMM || opcode == NVM_VTA_ALU;
}

static int is_transfer(const uint8_t *instruction) {
  uint8_t opcode = instruction[0] & 7u;
  return opcode == NVM_VTA_LOAD || opcode == NVM_VTA_STORE;
}

/* A micro-kernel that a run names. */
static void add_kernel(reader *r, nvm_vta_run *run, uint32_t kernel) {
  if (r->seen[kernel] == r->run) return;
  r->seen[kernel] = r->run;
  run->kernels[run->n_kernels++] = kernel;
}

static nvm_status read_stream(reader *r, nvm_vta_run *run, nvm_vta_stream *stream) {
  size_t bytes, mark_bytes;
  NVM_TRY(nvm_mp_bin(&r->mp, "instructions", &stream->instructions, &bytes));
  NVM_TRY(nvm_mp_bin(&r->mp, "marks", &stream->marks, &mark_bytes));
  if (bytes % NVM_VTA_INSTRUCTION_BYTES || bytes / NVM_VTA_INSTRUCTION_BYTES > MAX_STREAM ||
      mark_bytes != bytes / NVM_VTA_INSTRUCTION_BYTES * 2)
    return nvm_mp_fail(&r->mp, "%zu bytes of instructions with %zu bytes of marks", bytes,
                       mark_bytes);
  stream->count = (uint32_t)(bytes / NVM_VTA_INSTRUCTION_BYTES);
  for (uint32_t i = 0; i < stream->count; i++) {
    const uint8_t *instruction = stream->instructions + i * NVM_VTA_INSTRUCTION_BYTES;
    uint32_t mark = stream->marks[2 * i] | (uint32_t)(stream->marks[2 * i + 1] & 0x7F) << 8;
    uint32_t known = is_transfer(instruction)     ? run->n_symbols
                     : has_micro_ops(instruction) ? r->program->n_micro_kernels
                                                  : 0;
    if (mark != NVM_VTA_NO_SYMBOL && mark >= known)
      return nvm_mp_fail(&r->mp, "instruction %u is marked %u of %u", i, mark, known);
    if (mark != NVM_VTA_NO_SYMBOL && !is_transfer(instruction)) add_kernel(r, run, mark);
  }
  return NVM_OK;
}

static nvm_status read_run(reader *r, nvm_vta_run *run) {
  NVM_TRY(nvm_mp_u32(&r->mp, "rows of a trip", NVM_VTA_MAX_ROWS, &run->rows));
  if (!run->rows) return nvm_mp_fail(&r->mp, "a trip of no rows");
  NVM_TRY(nvm_mp_array(&r->mp, "symbols", 4, &run->n_symbols));
  if (run->n_symbols > NVM_VTA_MAX_SYMBOLS)
    return nvm_mp_fail(&r->mp, "%u symbols of a step", run->n_symbols);
  for (uint32_t i = 0; i < run->n_symbols; i++) {
    nvm_vta_symbol *symbol = &run->symbols[i];
    NVM_TRY(nvm_mp_tuple(&r->mp, "a symbol", 3));
    NVM_TRY(nvm_mp_u32(&r->mp, "operand of a symbol", NVM_VTA_CONSTANTS, &symbol->operand));
    NVM_TRY(nvm_mp_u32(&r->mp, "offset of a symbol", UINT32_MAX, &symbol->offset));
    NVM_TRY(nvm_mp_u32(&r->mp, "stride of a symbol", UINT32_MAX, &symbol->stride));
    if (symbol->operand != NVM_VTA_CONSTANTS && symbol->operand >= r->signature->n_operands)
      return nvm_mp_fail(&r->mp, "a symbol of operand %u of %u", symbol->operand,
                         r->signature->n_operands);
  }
  run->kernels = nvm_malloc((r->program->n_micro_kernels + 1u) * sizeof *run->kernels);
  if (!run->kernels) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta program");
  r->run++;
  NVM_TRY(read_stream(r, run, &run->prologue));
  NVM_TRY(read_stream(r, run, &run->body));
  return read_stream(r, run, &run->epilogue);
}

/* [is run, operand, axes, ...] */
static nvm_status read_step(reader *r, nvm_vta_step *step) {
  uint32_t words;
  NVM_TRY(nvm_mp_array(&r->mp, "a step", 1, &words));
  NVM_TRY(nvm_mp_bool(&r->mp, "kind of a step", &step->is_run));
  if (words != (step->is_run ? 11u : 9u)) return nvm_mp_fail(&r->mp, "a step of %u parts", words);
  NVM_TRY(read_operand(r, "operand that counts rows", &step->count.operand));
  NVM_TRY(nvm_mp_u32(&r->mp, "axes that count rows",
                     r->signature->operands[step->count.operand].rank, &step->count.axes));
  return step->is_run ? read_run(r, &step->run) : read_layout(r, &step->layout);
}

static nvm_status read_program(reader *r) {
  nvm_vta_program *program = r->program;
  uint32_t format;
  NVM_TRY(nvm_mp_record(&r->mp, "a vta program", 5));
  NVM_TRY(nvm_mp_key(&r->mp, "format"));
  NVM_TRY(nvm_mp_u32(&r->mp, "format", UINT32_MAX, &format));
  if (format != FORMAT)
    NVM_FAIL(NVM_UNSUPPORTED_VERSION, "vta program of format %u, this runtime reads %d", format,
             FORMAT);
  NVM_TRY(read_config(r));
  NVM_TRY(nvm_mp_key(&r->mp, "constants"));
  NVM_TRY(nvm_mp_bin(&r->mp, "constants", &program->constants, &program->n_constant_bytes));
  NVM_TRY(read_micro_kernels(r));
  NVM_TRY(nvm_mp_key(&r->mp, "steps"));
  uint32_t count;
  NVM_TRY(nvm_mp_array(&r->mp, "steps", 9, &count));
  if (count > NVM_VTA_MAX_STEPS) return nvm_mp_fail(&r->mp, "%u steps", count);
  program->steps = nvm_calloc((count + 1u) * sizeof *program->steps);
  if (!program->steps) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta program");
  program->n_steps = count;
  for (uint32_t i = 0; i < count; i++) NVM_TRY(read_step(r, &program->steps[i]));
  if (r->mp.at != r->mp.end) return nvm_mp_fail(&r->mp, "bytes behind the end");
  return NVM_OK;
}

/* Operands are whole tensors: an axis that may be stretched has no size of its own. */
static nvm_status check_signature(const nvm_signature *signature) {
  if (!signature->n_operands) NVM_FAIL(NVM_INVALID_EXECUTABLE, "vta: a kernel without operands");
  for (uint32_t i = 0; i < signature->n_operands; i++)
    for (uint32_t a = 0; a < signature->operands[i].rank; a++)
      if (signature->operands[i].axes[a].broadcast)
        NVM_FAIL(NVM_INVALID_EXECUTABLE, "vta: operand %u has an axis that may be stretched", i);
  return NVM_OK;
}

nvm_status nvm_vta_program_read(const void *blob, size_t size, const nvm_signature *signature,
                                nvm_vta_program *out_program) {
  reader r = {.signature = signature, .program = out_program};
  memset(out_program, 0, sizeof *out_program);
  nvm_mp_init(&r.mp, blob, size);
  r.mp.part = "vta program";
  nvm_status status = check_signature(signature);
  if (status == NVM_OK) status = read_program(&r);
  nvm_free(r.seen);
  if (status != NVM_OK) nvm_vta_program_free(out_program);
  return status;
}

void nvm_vta_program_free(nvm_vta_program *program) {
  for (uint32_t i = 0; i < program->n_steps; i++) nvm_free(program->steps[i].run.kernels);
  program->n_steps = 0;
  nvm_free(program->micro_kernels);
  nvm_free(program->steps);
  program->micro_kernels = NULL;
  program->steps = NULL;
}
