#include "mutator.h"

#include <string.h>

#include "decode.h"
#include "generated/nvm_dtype.h"
#include "generated/nvm_loop_ir.h"
#include "nvm_kernel.h"

enum { BYTECODE, CONSTANTS, KERNEL_IR, STARTS = 1024, IR_HEADER = 32, IR_RECORD = 16 };

static const int64_t edges[] = {0,
                                1,
                                2,
                                3,
                                4,
                                5,
                                7,
                                8,
                                9,
                                15,
                                16,
                                63,
                                64,
                                65,
                                127,
                                128,
                                255,
                                256,
                                0x7FFF,
                                0xFFFF,
                                1 << 20,
                                INT32_MAX,
                                (int64_t)1 << 31,
                                UINT32_MAX,
                                (int64_t)1 << 32,
                                (int64_t)1 << 40,
                                (int64_t)1 << 62,
                                INT64_MAX,
                                INT64_MIN,
                                INT64_MIN + 1,
                                -1,
                                -2,
                                -3,
                                -9,
                                -128};
enum { EDGES = sizeof edges / sizeof *edges };

static uint64_t rng_next(rng *r) {
  r->state ^= r->state << 13;
  r->state ^= r->state >> 7;
  r->state ^= r->state << 17;
  return r->state;
}

uint32_t rng_below(rng *r, uint32_t bound) { return (uint32_t)((rng_next(r) >> 20) % bound); }

static int one_in(rng *r, uint32_t n) { return rng_below(r, n) == 0; }
static int64_t edge(rng *r) { return edges[rng_below(r, EDGES)]; }

static uint32_t get(const uint8_t *at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static void put(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }

/* Something else for a number: near, an edge, anything. */
static uint32_t other(rng *r, uint32_t value) {
  switch (rng_below(r, 6)) {
    case 0:
      return value + 1;
    case 1:
      return value - 1;
    case 2:
      return rng_below(r, 8);
    case 3:
      return value ^ 1u << rng_below(r, 32);
    case 4:
      return (uint32_t)edge(r);
    default:
      return (uint32_t)rng_next(r);
  }
}

/* --- code ------------------------------------------------------------------------------------- */

/* A function's code and the tables' sizes. */
typedef struct function {
  uint32_t index, node; /* node: of its map */
  uint32_t ints, objs, first, count;
  uint32_t starts[STARTS], n_starts;
} function;

static uint32_t field_int(const model *m, uint32_t map, const char *key) {
  const uint32_t number = model_key(m, map, key);
  return number ? (uint32_t)model_int(m, number) : 0;
}

static uint8_t *code_of(model *m, const function *f) {
  return m->sections[BYTECODE] + 4 * (size_t)f->first;
}

/* Aligned copy of a function's words for the decoder. */
static const uint32_t *words_of(model *m, const function *f) {
  static uint32_t words[MODEL_SECTION / 4];
  memcpy(words, code_of(m, f), 4 * (size_t)f->count);
  return words;
}

static int function_at(model *m, uint32_t index, function *f) {
  const uint32_t table = model_table(m, "functions");
  const uint32_t map = table ? model_element(m, table, index) : 0;
  const uint32_t code = map ? model_key(m, map, "code") : 0;
  if (!code) return 0;
  *f = (function){.index = index, .node = map};
  f->ints = field_int(m, map, "ints");
  f->objs = field_int(m, map, "objs");
  f->first = (uint32_t)model_int(m, model_element(m, code, 0));
  f->count = (uint32_t)model_int(m, model_element(m, code, 1));
  const uint64_t total = m->section_size[BYTECODE] / 4;
  if (f->first > total || f->count > total - f->first || f->count == 0) return 0;
  const uint32_t *words = words_of(m, f);
  for (uint32_t pc = 0; pc < f->count && f->n_starts < STARTS;) {
    nvm_decoded decoded;
    if (nvm_decode(words, f->count, pc, &decoded) != NVM_DECODE_OK) break;
    f->starts[f->n_starts++] = pc;
    pc += decoded.size;
  }
  return f->n_starts > 0;
}

static int some_function(model *m, rng *r, function *f) {
  const uint32_t count = model_count(m, "functions");
  return count > 0 && function_at(m, rng_below(r, count), f);
}

static uint32_t at_most(rng *r, uint32_t count) { return count ? rng_below(r, count) : 0; }

/* A word of that kind which the verifier lets pass, most of the time. */
static uint32_t like(model *m, rng *r, const function *f, uint8_t kind, uint32_t word) {
  switch (kind) {
    case NVM_OPERAND_INT_IN:
    case NVM_OPERAND_INT_OUT:
      return at_most(r, f->ints);
    case NVM_OPERAND_OBJ_OPT:
      return one_in(r, 2) ? NVM_NO_REGISTER : at_most(r, f->objs);
    case NVM_OPERAND_OBJ_IN:
    case NVM_OPERAND_OBJ_OUT:
      return at_most(r, f->objs);
    case NVM_OPERAND_ANY_IN:
    case NVM_OPERAND_ANY_OUT:
      if (one_in(r, 8)) word ^= NVM_INT_BIT;
      return word & NVM_INT_BIT ? NVM_INT_BIT | at_most(r, f->ints) : at_most(r, f->objs);
    case NVM_OPERAND_DIM:
      if (one_in(r, 2)) return NVM_INT_BIT | at_most(r, f->ints);
      return one_in(r, 3) ? (uint32_t)edge(r) & ~NVM_INT_BIT : rng_below(r, 6);
    case NVM_OPERAND_CONST:
      return at_most(r, model_count(m, "constants"));
    case NVM_OPERAND_FUNC:
      return at_most(r, model_count(m, "functions"));
    case NVM_OPERAND_KERNEL:
      return at_most(r, model_count(m, "kernels"));
    case NVM_OPERAND_DEVICE:
      return at_most(r, model_count(m, "devices"));
    case NVM_OPERAND_CTOR:
      return at_most(r, model_count(m, "constructors"));
    case NVM_OPERAND_NOTE:
      return at_most(r, model_count(m, "notes"));
    case NVM_OPERAND_DTYPE:
      return rng_below(r, NVM_DTYPE_COUNT);
    case NVM_OPERAND_LABEL:
      return f->n_starts ? f->starts[rng_below(r, f->n_starts)] : 0;
    default:
      return one_in(r, 2) ? rng_below(r, 6) : (uint32_t)edge(r);
  }
}

static uint8_t element_kind(uint8_t kind) {
  switch (kind) {
    case NVM_OPERAND_LABEL_LIST:
      return NVM_OPERAND_LABEL;
    case NVM_OPERAND_DIM_LIST:
      return NVM_OPERAND_DIM;
    case NVM_OPERAND_ARG_LIST:
      return NVM_OPERAND_ANY_IN;
    case NVM_OPERAND_OBJ_LIST:
      return NVM_OPERAND_OBJ_IN;
    default:
      return NVM_OPERAND_INT_OUT;
  }
}

static void change_word(model *m, rng *r) {
  const uint32_t count = (uint32_t)(m->section_size[BYTECODE] / 4);
  if (count == 0) return;
  uint8_t *at = m->sections[BYTECODE] + 4 * (size_t)rng_below(r, count);
  put(at, one_in(r, 4) ? get(m->sections[BYTECODE] + 4 * (size_t)rng_below(r, count))
                       : other(r, get(at)));
}

/* An operand of an instruction by another of its kind, or the instruction by one with the same
 * operands. */
static void change_operand(model *m, rng *r) {
  function f;
  nvm_decoded d;
  if (!some_function(m, r, &f)) return;
  const uint32_t *words = words_of(m, &f);
  const uint32_t pc = f.starts[rng_below(r, f.n_starts)];
  if (nvm_decode(words, f.count, pc, &d) != NVM_DECODE_OK) return;
  const uint32_t k = rng_below(r, d.row->n_operands + 1u);
  uint8_t *at = code_of(m, &f) + 4 * (size_t)pc;
  if (k == d.row->n_operands) {
    const uint32_t opcode = rng_below(r, NVM_OPCODE_COUNT);
    const nvm_isa_row *row = &nvm_isa[opcode];
    if (row->mnemonic && row->n_operands == d.row->n_operands &&
        memcmp(row->kinds, d.row->kinds, row->n_operands) == 0) {
      put(at, opcode);
    }
    return;
  }
  uint8_t kind = d.row->kinds[k];
  uint32_t word = d.at[k];
  if (nvm_operand_is_list(kind)) {
    const uint32_t count = words[pc + word];
    if (count == 0) return;
    word += 1 + rng_below(r, count);
    kind = element_kind(kind);
  } else if (kind == NVM_OPERAND_IMM64) {
    const int64_t value = edge(r);
    put(at + 4 * (size_t)word, (uint32_t)value);
    put(at + 4 * (size_t)word + 4, (uint32_t)((uint64_t)value >> 32));
    return;
  }
  put(at + 4 * (size_t)word, like(m, r, &f, kind, words[pc + word]));
}

/* Numbers of operands that other tables determine. */
static uint32_t list_length(model *m, rng *r, const uint32_t *words, uint8_t kind, uint32_t place) {
  if (one_in(r, 8)) return rng_below(r, 5);
  const uint32_t opcode = words[0];
  if (opcode == NVM_OP_CallKernel) {
    const uint32_t table = model_table(m, "kernels");
    const uint32_t map = table ? model_element(m, table, words[1]) : 0;
    if (!map) return 0;
    if (kind == NVM_OPERAND_OUT_LIST) return field_int(m, map, "out_dims");
    const uint32_t list = model_key(m, map, kind == NVM_OPERAND_DIM_LIST ? "dims" : "operands");
    return list ? m->nodes[list].count : 0;
  }
  if (opcode == NVM_OP_Invoke || opcode == NVM_OP_InvokeTail) {
    const uint32_t table = model_table(m, "functions");
    const uint32_t map =
        table ? model_element(m, table, words[opcode == NVM_OP_Invoke ? 2 : 1]) : 0;
    const uint32_t list = map ? model_key(m, map, "params") : 0;
    return list ? m->nodes[list].count : 0;
  }
  if (opcode == NVM_OP_AllocADT) {
    const uint32_t table = model_table(m, "constructors");
    const uint32_t row = table ? model_element(m, table, words[2]) : 0;
    const uint32_t list = row ? model_element(m, row, 3) : 0;
    return list && words[2] ? m->nodes[list].count : rng_below(r, 4);
  }
  return rng_below(r, place > 2 ? 3 : 4);
}

enum { MOST_WORDS = 96 };

/* A new instruction with operands of the right kinds; returns its words. */
static uint32_t new_instruction(model *m, rng *r, const function *f, uint32_t *words) {
  const nvm_isa_row *row;
  do {
    words[0] = rng_below(r, NVM_OPCODE_COUNT);
    row = &nvm_isa[words[0]];
  } while (!row->mnemonic);
  uint32_t used = 1;
  for (uint32_t k = 0; k < row->n_operands; k++) {
    const uint8_t kind = row->kinds[k];
    if (kind == NVM_OPERAND_IMM64) {
      const int64_t value = edge(r);
      words[used++] = (uint32_t)value;
      words[used++] = (uint32_t)((uint64_t)value >> 32);
    } else if (nvm_operand_is_list(kind)) {
      uint32_t count = list_length(m, r, words, kind, k);
      if (count > 16 || used + count + 8 > MOST_WORDS) count = 0;
      words[used++] = count;
      for (uint32_t i = 0; i < count; i++, used++) {
        words[used] = one_in(r, 2) ? NVM_INT_BIT : 0;
        words[used] = like(m, r, f, element_kind(kind), words[used]);
      }
    } else {
      words[used] = one_in(r, 2) ? NVM_INT_BIT : 0;
      words[used] = like(m, r, f, kind, words[used]);
      used++;
    }
  }
  return used;
}

/* Labels behind word `from` of a function move by `by`. */
static void move_labels(model *m, const function *f, uint32_t from, int32_t by) {
  const uint32_t *words = words_of(m, f);
  uint8_t *code = code_of(m, f);
  for (uint32_t i = 0; i < f->n_starts; i++) {
    nvm_decoded d;
    if (nvm_decode(words, f->count, f->starts[i], &d) != NVM_DECODE_OK) return;
    for (uint32_t k = 0; k < d.row->n_operands; k++) {
      const uint8_t kind = d.row->kinds[k];
      const uint32_t at = f->starts[i] + d.at[k];
      const uint32_t first = kind == NVM_OPERAND_LABEL_LIST ? at + 1 : at;
      uint32_t count = kind == NVM_OPERAND_LABEL_LIST ? words[at] : 1;
      if (kind != NVM_OPERAND_LABEL && kind != NVM_OPERAND_LABEL_LIST) count = 0;
      for (uint32_t w = first; w < first + count; w++)
        if (words[w] > from) put(code + 4 * (size_t)w, words[w] + (uint32_t)by);
    }
  }
}

/* The function at `index` has `by` more words: so say its row and those behind it. */
static void resize_function(model *m, uint32_t index, int32_t by) {
  const uint32_t count = model_count(m, "functions");
  for (uint32_t i = index; i < count; i++) {
    const uint32_t map = model_element(m, model_table(m, "functions"), i);
    const uint32_t code = map ? model_key(m, map, "code") : 0;
    const uint32_t number = code ? model_element(m, code, i == index ? 1 : 0) : 0;
    if (number) model_set_int(m, number, model_int(m, number) + by);
  }
}

static void splice_code(model *m, const function *f, uint32_t pc, uint32_t removed,
                        const uint32_t *words, uint32_t count) {
  const int32_t by = (int32_t)count - (int32_t)removed;
  if (f->count - removed + count == 0) return;
  if (m->section_size[BYTECODE] + 4 * (size_t)count > MODEL_SECTION) return;
  move_labels(m, f, pc, by);
  if (model_section_splice(m, BYTECODE, 4 * ((size_t)f->first + pc), 4 * (size_t)removed,
                           (const uint8_t *)words, 4 * (size_t)count)) {
    resize_function(m, f->index, by);
  }
}

/* Insert, replace, delete or copy an instruction. */
static void change_instruction(model *m, rng *r) {
  function f, from;
  uint32_t words[MOST_WORDS + 32], count = 0, removed = 0;
  nvm_decoded d;
  if (!some_function(m, r, &f)) return;
  const uint32_t pc = f.starts[rng_below(r, f.n_starts)], how = rng_below(r, 8);
  if (how < 2 && nvm_decode(words_of(m, &f), f.count, pc, &d) == NVM_DECODE_OK) removed = d.size;
  if (how >= 6 && some_function(m, r, &from)) {
    const uint32_t *source = words_of(m, &from), at = from.starts[rng_below(r, from.n_starts)];
    if (nvm_decode(source, from.count, at, &d) == NVM_DECODE_OK && d.size <= MOST_WORDS) {
      count = d.size;
      memcpy(words, source + at, 4 * (size_t)count);
    }
  } else if (how > 0) {
    count = new_instruction(m, r, &f, words);
  }
  if (count + removed) splice_code(m, &f, pc, removed, words, count);
}

/* --- the header ------------------------------------------------------------------------------- */

static uint32_t some_node(const model *m, rng *r) {
  return m->n_nodes < 2 ? 0 : 1 + rng_below(r, m->n_nodes - 1);
}

static void change_scalar(model *m, rng *r, uint32_t number) {
  const node n = m->nodes[number];
  uint8_t bytes[64] = {0};
  size_t size = 1;
  switch (n.kind) {
    case NODE_INT: {
      const int64_t value = model_int(m, number);
      const uint32_t how = rng_below(r, 5);
      model_set_int(m, number,
                    how == 0   ? (int64_t)((uint64_t)value + 1)
                    : how == 1 ? (int64_t)((uint64_t)value - 1)
                    : how == 2 ? edge(r)
                               : (int64_t)rng_below(r, 13));
      return;
    }
    case NODE_BOOL:
      m->header[n.at] ^= 1;
      return;
    case NODE_STR:
    case NODE_BIN:
      if (n.end > n.body && one_in(r, 2)) {
        m->header[n.body + rng_below(r, n.end - n.body)] = (uint8_t)rng_next(r);
        return;
      }
      size = 1 + rng_below(r, 12);
      bytes[0] = (uint8_t)(0xa0 | (size - 1));
      if (n.kind == NODE_BIN) bytes[0] = 0xc4, bytes[1] = (uint8_t)(size - 1), size++;
      for (size_t i = n.kind == NODE_BIN ? 2 : 1; i < size; i++)
        bytes[i] = (uint8_t)rng_below(r, 128);
      break;
    default:
      bytes[0] = one_in(r, 2) ? 0xc0 : 0x90;
  }
  model_splice(m, n.at, n.end - n.at, bytes, size);
}

/* One value over another: of the same kind, most of the time. */
static void copy_value(model *m, rng *r) {
  uint8_t bytes[512];
  const uint32_t from = some_node(m, r);
  uint32_t to = some_node(m, r);
  for (uint32_t tries = 0; tries < 16 && m->nodes[to].kind != m->nodes[from].kind; tries++)
    to = some_node(m, r);
  const node source = m->nodes[from], target = m->nodes[to];
  const size_t size = source.end - source.at;
  if (!from || !to || size > sizeof bytes) return;
  memcpy(bytes, m->header + source.at, size);
  model_splice(m, target.at, target.end - target.at, bytes, size);
}

static void change_array(model *m, rng *r) {
  for (uint32_t tries = 0; tries < 16; tries++) {
    const uint32_t number = some_node(m, r);
    if (!number || m->nodes[number].kind != NODE_ARRAY || !m->nodes[number].count) continue;
    model_repeat(m, number, rng_below(r, m->nodes[number].count), one_in(r, 2));
    return;
  }
}

/* What the reader mostly lets pass: registers, kinds of functions, operands of kernels, types. */
static void change_table(model *m, rng *r) {
  static const char *const tables[] = {"functions", "kernels", "types",
                                       "constants", "adts",    "constructors"};
  const uint32_t table = model_table(m, tables[rng_below(r, 6)]);
  if (!table || m->nodes[table].kind != NODE_ARRAY || !m->nodes[table].count) return;
  const uint32_t row = model_element(m, table, rng_below(r, m->nodes[table].count));
  const uint32_t inside = m->nodes[row].next - row;
  if (inside < 2) return;
  const uint32_t number = row + 1 + rng_below(r, inside - 1);
  if (m->nodes[number].kind == NODE_INT || m->nodes[number].kind == NODE_BOOL)
    change_scalar(m, r, number);
  else if (m->nodes[number].kind == NODE_ARRAY && m->nodes[number].count)
    model_repeat(m, number, rng_below(r, m->nodes[number].count), one_in(r, 2));
}

/* --- kernel IR -------------------------------------------------------------------------------- */

typedef struct body {
  uint32_t kernel, offset, size;
  uint32_t nodes, statements, indices, locals, vars;
  uint8_t *data;
} body;

static int some_body(model *m, rng *r, body *out) {
  const uint32_t table = model_table(m, "kernels"), count = model_count(m, "kernels");
  if (!count) return 0;
  out->kernel = rng_below(r, count);
  const uint32_t map = model_element(m, table, out->kernel), ir = model_key(m, map, "ir");
  if (!ir) return 0;
  out->offset = (uint32_t)model_int(m, model_element(m, ir, 0));
  out->size = (uint32_t)model_int(m, model_element(m, ir, 1));
  const size_t total = m->section_size[KERNEL_IR];
  if (out->offset > total || out->size > total - out->offset || out->size < IR_HEADER) return 0;
  out->data = m->sections[KERNEL_IR] + out->offset;
  out->nodes = get(out->data + 8);
  out->statements = get(out->data + 12);
  out->indices = get(out->data + 16);
  out->locals = get(out->data + 20);
  out->vars = get(out->data + 24);
  if (out->nodes > out->size || out->statements > out->size || out->indices > out->size) return 0;
  return IR_HEADER + IR_RECORD * ((size_t)out->nodes + out->statements) + 4 * (size_t)out->indices +
             out->locals <=
         out->size;
}

static uint8_t *ir_node(const body *b, uint32_t i) {
  return b->data + IR_HEADER + IR_RECORD * (size_t)i;
}
static uint8_t *ir_statement(const body *b, uint32_t i) { return ir_node(b, b->nodes + i); }

static uint32_t node_of_dtype(const body *b, rng *r, uint8_t dtype, uint32_t below) {
  for (uint32_t tries = 0; tries < 12 && below; tries++) {
    const uint32_t i = rng_below(r, below);
    if (ir_node(b, i)[1] == dtype) return i;
  }
  return at_most(r, below);
}

static void change_record(model *m, rng *r) {
  body b;
  if (!some_body(m, r, &b) || b.nodes + b.statements == 0) return;
  const uint32_t i = rng_below(r, b.nodes + b.statements);
  uint8_t *record = ir_node(&b, i);
  const int is_node = i < b.nodes;
  const uint32_t before = is_node ? i : b.nodes;
  switch (rng_below(r, 8)) {
    case 0:
      record[0] = (uint8_t)rng_below(r, is_node ? NVM_IR_NODE_COUNT : NVM_IR_STMT_COUNT);
      return;
    case 1:
      record[1] = (uint8_t)rng_below(r, NVM_DTYPE_COUNT);
      return;
    case 2:
      record[2] = (uint8_t)rng_below(r, 40);
      return;
    case 3:
      if (is_node && record[0] == NVM_IR_NODE_CONST) {
        const int64_t value = edge(r);
        put(record + 8, (uint32_t)value);
        put(record + 12, (uint32_t)((uint64_t)value >> 32));
        return;
      }
      record[3] = (uint8_t)rng_below(r, 9);
      return;
    case 4:
      if (before) memcpy(record, ir_node(&b, rng_below(r, before)), IR_RECORD);
      return;
    default: { /* another value of the same dtype */
      uint8_t *at = record + 4 + 4 * (size_t)rng_below(r, 3);
      const uint32_t now = get(at);
      const uint8_t dtype = now < b.nodes ? ir_node(&b, now)[1] : NVM_DTYPE_INT64;
      put(at, one_in(r, 4) ? other(r, now) : node_of_dtype(&b, r, dtype, before));
    }
  }
}

static void change_index(model *m, rng *r) {
  body b;
  if (!some_body(m, r, &b) || !b.indices) return;
  uint8_t *at = ir_statement(&b, b.statements) + 4 * (size_t)rng_below(r, b.indices);
  put(at, one_in(r, 4) ? other(r, get(at)) : node_of_dtype(&b, r, NVM_DTYPE_INT64, b.nodes));
}

static void grow_body(model *m, const body *b, size_t at, const uint8_t *record, uint32_t word) {
  const uint32_t count = model_count(m, "kernels");
  if (!model_section_splice(m, KERNEL_IR, b->offset + at, 0, record, IR_RECORD)) return;
  put(b->data + word, get(b->data + word) + 1);
  for (uint32_t k = b->kernel; k < count; k++) {
    const uint32_t map = model_element(m, model_table(m, "kernels"), k);
    const uint32_t ir = map ? model_key(m, map, "ir") : 0;
    const uint32_t number = ir ? model_element(m, ir, k == b->kernel ? 1 : 0) : 0;
    if (!number || (k != b->kernel && model_int(m, model_element(m, ir, 1)) == 0)) continue;
    model_set_int(m, number, model_int(m, number) + IR_RECORD);
  }
}

/* A new expression at the end, and a statement that uses it. */
static void add_expression(model *m, rng *r) {
  body b;
  if (!some_body(m, r, &b) || !b.nodes) return;
  uint8_t record[IR_RECORD] = {0};
  const uint32_t first = rng_below(r, b.nodes);
  const uint8_t dtype = ir_node(&b, first)[1];
  record[0] = (uint8_t)(NVM_IR_NODE_UNARY + rng_below(r, NVM_IR_NODE_COUNT - NVM_IR_NODE_UNARY));
  record[1] = record[0] == NVM_IR_NODE_COMPARE ? (uint8_t)NVM_DTYPE_BOOL
              : record[0] == NVM_IR_NODE_CAST  ? (uint8_t)rng_below(r, NVM_DTYPE_COUNT)
                                               : dtype;
  record[2] = (uint8_t)rng_below(r, record[0] == NVM_IR_NODE_UNARY ? 40 : 24);
  put(record + 4, first);
  put(record + 8, node_of_dtype(&b, r, dtype, b.nodes));
  put(record + 12, node_of_dtype(&b, r, dtype, b.nodes));
  if (record[0] == NVM_IR_NODE_SELECT)
    put(record + 4, node_of_dtype(&b, r, NVM_DTYPE_BOOL, b.nodes));
  if (record[0] == NVM_IR_NODE_CHECKINDEX) put(record + 12, 0);
  if (b.statements) {
    uint8_t *s = ir_statement(&b, rng_below(r, b.statements));
    if (s[0] == NVM_IR_STMT_STORE) put(s + 12, b.nodes);
    if (s[0] == NVM_IR_STMT_SETLOCAL || s[0] == NVM_IR_STMT_ACCUMULATE) put(s + 8, b.nodes);
    if (s[0] == NVM_IR_STMT_FOR || s[0] == NVM_IR_STMT_SETDIM) put(s + 8, b.nodes);
    if (s[0] == NVM_IR_STMT_IF) put(s + 4, b.nodes);
  }
  grow_body(m, &b, IR_HEADER + IR_RECORD * (size_t)b.nodes, record, 8);
}

/* A copy of a simple statement, or a loop or branch around one. */
static void add_statement(model *m, rng *r) {
  body b;
  if (!some_body(m, r, &b) || !b.statements) return;
  uint8_t record[IR_RECORD];
  const uint32_t at = rng_below(r, b.statements);
  memcpy(record, ir_statement(&b, rng_below(r, b.statements)), IR_RECORD);
  for (uint32_t i = 0; i < b.statements; i++) { /* ends move */
    uint8_t *s = ir_statement(&b, i);
    if (s[0] != NVM_IR_STMT_FOR && s[0] != NVM_IR_STMT_IF) continue;
    if (get(s + 12) > at) put(s + 12, get(s + 12) + 1);
    if (s[0] == NVM_IR_STMT_IF && get(s + 8) > at) put(s + 8, get(s + 8) + 1);
  }
  if (one_in(r, 2) || record[0] == NVM_IR_STMT_FOR || record[0] == NVM_IR_STMT_IF) {
    const int loop = one_in(r, 2);
    memset(record, 0, sizeof record);
    record[0] = loop ? NVM_IR_STMT_FOR : NVM_IR_STMT_IF;
    put(record + 4, loop ? b.vars : node_of_dtype(&b, r, NVM_DTYPE_BOOL, b.nodes));
    put(record + 8, loop ? node_of_dtype(&b, r, NVM_DTYPE_INT64, b.nodes) : at + 2);
    put(record + 12, at + 2);
    if (loop && b.vars < b.statements + 1) put(b.data + 24, b.vars + 1);
  }
  grow_body(m, &b, IR_HEADER + IR_RECORD * ((size_t)b.nodes + at), record, 12);
}

/* --- sections and script ---------------------------------------------------------------------- */

static void change_bytes(model *m, rng *r) {
  const uint32_t section = rng_below(r, m->n_sections);
  const uint32_t size = (uint32_t)m->section_size[section];
  if (!size) return;
  for (uint32_t i = 1 + rng_below(r, 4); i > 0; i--) {
    uint8_t *at = &m->sections[section][rng_below(r, size)];
    *at = one_in(r, 2) ? (uint8_t)edge(r) : (uint8_t)rng_next(r);
  }
}

static void change_size(model *m, rng *r) {
  const uint32_t section = rng_below(r, m->n_sections);
  static const uint8_t zeros[64];
  const size_t size = m->section_size[section];
  if (one_in(r, 2))
    m->section_size[section] = rng_below(r, (uint32_t)size + 1);
  else
    model_section_splice(m, section, size, 0, zeros, 1 + rng_below(r, sizeof zeros));
}

static void change_fixed(model *m, rng *r) {
  m->fixed[rng_below(r, MODEL_FIXED)] = (uint8_t)(one_in(r, 2) ? edge(r) : (int64_t)rng_next(r));
}

static void change_script(model *m, rng *r) {
  if (m->script_size == 0 || (m->script_size < MODEL_SCRIPT && one_in(r, 4))) {
    m->script[m->script_size++] = (uint8_t)(one_in(r, 2) ? 0 : rng_next(r));
  } else if (one_in(r, 12)) {
    m->script_size = rng_below(r, (uint32_t)m->script_size);
  } else {
    uint8_t *at = &m->script[rng_below(r, (uint32_t)m->script_size)];
    *at = one_in(r, 2) ? (uint8_t)(*at ^ 1u << rng_below(r, 8)) : (uint8_t)rng_next(r);
  }
}

void mutate(model *m, rng *r) {
  static const struct {
    void (*change)(model *m, rng *r);
    uint32_t weight;
  } mutations[] = {{change_operand, 20}, {change_instruction, 18}, {change_word, 6},
                   {change_record, 14},  {change_index, 5},        {add_expression, 6},
                   {add_statement, 6},   {change_table, 10},       {copy_value, 4},
                   {change_array, 4},    {change_bytes, 3},        {change_size, 1},
                   {change_fixed, 1},    {change_script, 18}};
  uint32_t total = 0;
  for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) total += mutations[i].weight;
  uint32_t chosen = rng_below(r, total + 3);
  for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
    if (chosen < mutations[i].weight) {
      mutations[i].change(m, r);
      return;
    }
    chosen -= mutations[i].weight;
  }
  change_scalar(m, r, some_node(m, r));
}
