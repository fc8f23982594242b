/* Linearize: the nodes of a tree as tables, level by level, so that a loop over levels can take the
 * place of recursion. Source: Fegade, Chen, Gibbons and Mowry 2021, "Cortex" (arXiv 2011.01383).
 *
 * Nodes are listed breadth first, each with its parent: parents come before children, so neither
 * listing them nor finding their levels, from the end backwards, needs a stack. */
#include "copy.h"
#include "limits.h"
#include "ops.h"

typedef struct node {
  const nvm_adt *value;
  uint32_t parent, column; /* column: which table of the parent's constructor names this node */
  uint32_t tag, level;     /* level: 0 without children, else one more than the highest of them */
  uint32_t row, place;     /* its number among all nodes, and among those of its constructor */
} node;

enum field_kind { SKIPPED, CHILD, TABLE };

typedef struct layout {
  const nvm_ctor *ctor;
  const uint8_t *kinds; /* enum field_kind of its fields */
  uint32_t first;       /* its first field of the result */
  uint32_t total;       /* its nodes */
} layout;

typedef struct walk {
  nvm_vm *vm;
  int32_t adt;
  uint32_t count, levels; /* count: constructors of the type */
  nvm_storage *block;     /* of the nodes */
  node *nodes;
  size_t n, capacity;
  nvm_storage *room;     /* of what follows */
  layout *layouts;       /* for each constructor */
  const char **lying;    /* for each field of the result: see copy_field */
  uint32_t n_fields;     /* of the result */
  nvm_storage *numbers;  /* of what follows */
  uint32_t *row, *place; /* for each level and constructor: its nodes, then the next one's number */
} walk;

static enum field_kind kind_of(const walk *w, const nvm_ctor *ctor, uint32_t field) {
  const nvm_type *type = &w->vm->program->types[ctor->field_types[field]];
  if (type->words[0] == 2) return type->n_words == 2 && type->words[1] == w->adt ? CHILD : SKIPPED;
  if (type->words[0] != 0 || type->n_words >= 2 + NVM_MAX_RANK) return SKIPPED;
  for (uint32_t i = 2; i < type->n_words; i++)
    if (type->words[i] < 0) return SKIPPED;
  return TABLE;
}

/* What becomes of the fields, once for all nodes. */
static nvm_status lay_out(walk *w, const nvm_ctor *ctors) {
  size_t fields = 0;
  for (uint32_t tag = 0; tag < w->count; tag++) fields += ctors[tag].n_fields;
  size_t most = fields + w->count; /* in the result */
  size_t size = w->count * sizeof *w->layouts + most * sizeof *w->lying + fields;
  NVM_TRY(nvm_storage_create(w->vm->heap, 0, size, NVM_BLOCK_ALIGNMENT, &w->room));
  w->layouts = w->room->memory;
  w->lying = (const char **)(void *)(w->layouts + w->count);
  uint8_t *kinds = (uint8_t *)(w->lying + most);
  for (uint32_t tag = 0; tag < w->count; tag++) {
    const nvm_ctor *ctor = &ctors[tag];
    w->layouts[tag] = (layout){ctor, kinds, w->n_fields++, 0};
    for (uint32_t f = 0; f < ctor->n_fields; f++) {
      enum field_kind kind = kind_of(w, ctor, f);
      *kinds++ = (uint8_t)kind;
      w->n_fields += kind != SKIPPED;
    }
  }
  for (uint32_t f = 0; f < w->n_fields; f++) w->lying[f] = NULL;
  return NVM_OK;
}

/* At once, since a value that holds another one twice has more nodes than memory. */
static inline nvm_status charge(nvm_vm *vm, int64_t words) {
  vm->slice -= words;
  return NVM_UNLIKELY(vm->slice < 0) ? nvm_vm_checkpoint(vm) : NVM_OK;
}

/* --- nodes ------------------------------------------------------------------------------------ */

NVM_COLD static nvm_status grow(walk *w) {
  size_t capacity = w->capacity ? 2 * w->capacity : 64;
  if (capacity > INT32_MAX) NVM_FAIL(NVM_DIM_OVERFLOW, "a value has more than 2^30 nodes");
  nvm_storage *block;
  NVM_TRY(nvm_storage_create(w->vm->heap, 0, capacity * sizeof(node), NVM_BLOCK_ALIGNMENT, &block));
  if (w->block) {
    memcpy(block->memory, w->nodes, w->n * sizeof(node));
    nvm_storage_release(w->vm->heap, w->block);
  }
  w->block = block;
  w->nodes = block->memory;
  w->capacity = capacity;
  return NVM_OK;
}

static nvm_status add_node(walk *w, const nvm_object *object, uint32_t parent, uint32_t column) {
  const nvm_program *program = w->vm->program;
  const nvm_adt *value = (const nvm_adt *)(const void *)object;
  if (NVM_UNLIKELY(object->kind != NVM_KIND_ADT))
    NVM_FAIL(NVM_VALUE_KIND, "expected a value of type %s, got %s", program->adts[w->adt].name,
             nvm_kind_name(object));
  const nvm_ctor *ctor = &program->ctors[value->ctor];
  if (NVM_UNLIKELY(ctor->adt != w->adt || ctor->n_fields != value->n_fields))
    NVM_FAIL(NVM_VALUE_KIND, "expected a value of type %s, got one of %u fields made by %s",
             program->adts[w->adt].name, value->n_fields, ctor->name);
  if (NVM_UNLIKELY(w->n == w->capacity)) NVM_TRY(grow(w));
  node *made = &w->nodes[w->n++]; /* the optimizer for size would clear all of it first */
  made->value = value;
  made->parent = parent;
  made->column = column;
  made->tag = ctor->tag;
  made->level = 0;
  return charge(w->vm, 8);
}

static nvm_status list_nodes(walk *w, const nvm_object *root) {
  NVM_TRY(add_node(w, root, 0, 0));
  for (size_t i = 0; i < w->n; i++) {
    const nvm_adt *value = w->nodes[i].value;
    const uint8_t *kinds = w->layouts[w->nodes[i].tag].kinds;
    uint32_t column = 1;
    for (uint32_t f = 0; f < value->n_fields; f++) {
      if (kinds[f] == CHILD) NVM_TRY(add_node(w, value->fields[f], (uint32_t)i, column));
      column += kinds[f] != SKIPPED;
    }
  }
  return NVM_OK;
}

/* --- order ------------------------------------------------------------------------------------ */

/* Levels of the nodes, and how many there are of each constructor on each. */
static nvm_status count_nodes(walk *w) {
  node *nodes = w->nodes;
  for (size_t i = w->n - 1; i > 0; i--) {
    node *parent = &nodes[nodes[i].parent];
    if (parent->level <= nodes[i].level) parent->level = nodes[i].level + 1;
  }
  w->levels = nodes[0].level + 1;
  size_t groups = (size_t)w->levels * w->count, size = 2 * groups * sizeof *w->row;
  NVM_TRY(charge(w->vm, (int64_t)groups));
  NVM_TRY(nvm_storage_create(w->vm->heap, 0, size, NVM_BLOCK_ALIGNMENT, &w->numbers));
  w->row = w->numbers->memory;
  w->place = w->row + groups;
  memset(w->row, 0, size);
  for (size_t i = 0; i < w->n; i++) {
    w->row[(size_t)nodes[i].level * w->count + nodes[i].tag]++;
    w->layouts[nodes[i].tag].total++;
  }
  return NVM_OK;
}

/* From how many there are in a group to the number of its first. */
static void number_groups(walk *w) {
  uint32_t row = 0;
  for (uint32_t tag = 0; tag < w->count; tag++) w->layouts[tag].total = 0;
  for (size_t level = 0, group = 0; level < w->levels; level++)
    for (uint32_t tag = 0; tag < w->count; tag++, group++) {
      uint32_t size = w->row[group];
      w->row[group] = row;
      w->place[group] = w->layouts[tag].total;
      row += size;
      w->layouts[tag].total += size;
    }
}

/* --- tables ----------------------------------------------------------------------------------- */

static nvm_status make_table(walk *w, uint32_t dtype, int64_t rows, const nvm_type *of,
                             nvm_object **out_table) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t rank = of ? of->n_words - 1 : 1;
  dims[0] = rows;
  for (uint32_t i = 1; i < rank; i++) dims[i] = of->words[i + 1];
  nvm_tensor *table;
  NVM_TRY(nvm_tensor_create(w->vm->heap, 0, dtype, rank, dims, &table));
  *out_table = &table->header;
  return NVM_OK;
}

/* The fields of the result: sizes of levels, then a table a field, for each constructor. */
static nvm_status make_tables(walk *w, nvm_object **fields) {
  const nvm_type *types = w->vm->program->types;
  for (uint32_t tag = 0; tag < w->count; tag++) {
    const layout *of = &w->layouts[tag];
    nvm_object **next = &fields[of->first];
    NVM_TRY(make_table(w, NVM_DTYPE_INT32, w->levels, NULL, next));
    uint32_t *sizes = (uint32_t *)(void *)((nvm_tensor *)*next++)->data;
    for (size_t level = 0; level < w->levels; level++)
      sizes[level] = w->row[level * w->count + tag];
    for (uint32_t f = 0; f < of->ctor->n_fields; f++) {
      if (of->kinds[f] == SKIPPED) continue;
      const nvm_type *row = of->kinds[f] == TABLE ? &types[of->ctor->field_types[f]] : NULL;
      uint32_t dtype = row ? (uint32_t)row->words[1] : NVM_DTYPE_INT32;
      NVM_TRY(make_table(w, dtype, of->total, row, next++));
    }
  }
  return NVM_OK;
}

NVM_COLD static nvm_status wrong_field(const walk *w, const nvm_ctor *ctor, uint32_t field,
                                       const nvm_tensor *tensor) {
  const nvm_type *want = &w->vm->program->types[ctor->field_types[field]];
  if (tensor->rank + 2u == want->n_words && tensor->header.extra == want->words[1])
    for (uint32_t i = 0; i < tensor->rank; i++)
      if (tensor->dims[i] != want->words[2 + i])
        NVM_FAIL(NVM_SHAPE_MISMATCH,
                 "dim mismatch: field %u of %s, axis %u: expected %lld, got %lld", field,
                 ctor->name, i, (long long)want->words[2 + i], (long long)tensor->dims[i]);
  char text[NVM_SHAPE_TEXT];
  NVM_FAIL(NVM_VALUE_KIND,
           "field %u of %s is a tensor %s on device %u, not of its type on the host", field,
           ctor->name, nvm_shape_text(text, tensor->header.extra, tensor->rank, tensor->dims),
           tensor->device);
}

static nvm_status copy(walk *w, char *to, const char *from, size_t bytes) {
  if (bytes) NVM_TRY(nvm_copy(w->vm->heap, to, from, bytes));
  w->vm->heap->copied_bytes += bytes;
  return charge(w->vm, (int64_t)(bytes >> 6));
}

/* Whether a tensor is where its row is in the caller's memory, all of which is good until the run
 * ends. */
static int lies_in_row(const nvm_tensor *tensor, const char *table, uint32_t row) {
  const nvm_storage *storage = tensor->storage;
  return storage && !storage->pool && !storage->release &&
         tensor->data == table + row * tensor->bytes;
}

/* A tensor of a node into its row of a table. Nodes without children come in the order of rows, and
 * bindings lay their tensors out in this order (args_fill.c): while they lie one behind the other
 * in the caller's memory, *lying is the first one, and nothing is copied. */
static nvm_status copy_field(walk *w, const node *at, uint32_t field, nvm_tensor *table,
                             const char **lying) {
  const nvm_ctor *ctor = w->layouts[at->tag].ctor;
  const nvm_object *object = at->value->fields[field];
  if (NVM_UNLIKELY(object->kind != NVM_KIND_TENSOR))
    NVM_FAIL(NVM_VALUE_KIND, "field %u of %s: expected a tensor, got %s", field, ctor->name,
             nvm_kind_name(object));
  const nvm_tensor *tensor = (const nvm_tensor *)(const void *)object;
  const nvm_heap *heap = w->vm->heap;
  int fits = tensor->header.extra == table->header.extra && tensor->rank + 1 == table->rank &&
             (tensor->device == 0 || heap->pools[tensor->device].device->vtable->host_accessible);
  for (uint32_t i = 0; fits && i < tensor->rank; i++) fits = tensor->dims[i] == table->dims[i + 1];
  if (NVM_UNLIKELY(!fits)) return wrong_field(w, ctor, field, tensor);
  if (at->level == 0 && at->place == 0) *lying = tensor->data;
  if (*lying && lies_in_row(tensor, *lying, at->place)) return NVM_OK;
  size_t before = *lying ? at->place * tensor->bytes : 0; /* bytes that are not copied yet */
  if (before) NVM_TRY(copy(w, table->data, *lying, before));
  *lying = NULL;
  return copy(w, table->data + at->place * tensor->bytes, tensor->data, tensor->bytes);
}

static nvm_status fill_tables(walk *w, nvm_object **fields) {
  for (size_t i = 0; i < w->n; i++) {
    node *at = &w->nodes[i];
    const layout *of = &w->layouts[at->tag];
    size_t group = (size_t)at->level * w->count + at->tag;
    at->row = w->row[group]++;
    at->place = w->place[group]++;
    if (i > 0) {
      const node *parent = &w->nodes[at->parent];
      nvm_tensor *names = (nvm_tensor *)fields[w->layouts[parent->tag].first + at->column];
      ((uint32_t *)(void *)names->data)[parent->place] = at->row;
    }
    size_t next = of->first + 1;
    for (uint32_t f = 0; f < at->value->n_fields; f++) {
      if (of->kinds[f] == TABLE)
        NVM_TRY(copy_field(w, at, f, (nvm_tensor *)fields[next], &w->lying[next]));
      next += of->kinds[f] != SKIPPED;
    }
  }
  return NVM_OK;
}

/* Tables that nothing was copied to become the caller's memory, to which they are bound as
 * arguments are. */
static nvm_status borrow_tables(walk *w, nvm_adt *tables) {
  nvm_heap *heap = w->vm->heap;
  for (uint32_t f = 0; f < tables->n_fields; f++) {
    if (!w->lying[f]) continue;
    nvm_tensor *made = (nvm_tensor *)tables->fields[f], *lying;
    nvm_storage *block;
    NVM_TRY(nvm_storage_borrow(heap, w->lying[f], made->bytes, NULL, NULL, &block));
    NVM_TRY(nvm_tensor_whole(heap, block, made->header.extra, made->rank, made->dims, &lying));
    tables->fields[f] = &lying->header;
    nvm_release(heap, &made->header);
  }
  return NVM_OK;
}

/* --- the instruction -------------------------------------------------------------------------- */

static nvm_status tabulate(walk *w, const nvm_ctor *ctors, const nvm_object *root,
                           nvm_adt **out_tables) {
  NVM_TRY(lay_out(w, ctors));
  NVM_TRY(list_nodes(w, root));
  NVM_TRY(count_nodes(w));
  NVM_TRY(nvm_adt_create(w->vm->heap, 0, w->n_fields, out_tables));
  memset((*out_tables)->fields, 0, w->n_fields * sizeof(nvm_object *));
  NVM_TRY(make_tables(w, (*out_tables)->fields));
  number_groups(w);
  NVM_TRY(fill_tables(w, (*out_tables)->fields));
  return borrow_tables(w, *out_tables);
}

nvm_status nvm_op_linearize(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_Linearize_src(pc), NVM_KIND_ADT, "an ADT value"));
  const nvm_program *program = vm->program;
  int32_t adt = program->ctors[NVM_Linearize_type(pc)].adt;
  if (NVM_UNLIKELY(adt < 0)) NVM_FAIL(NVM_VALUE_KIND, "tuples have no nodes of one type");
  const nvm_adt_def *def = &program->adts[adt];
  walk w = {.vm = vm, .adt = adt, .count = def->count};
  nvm_adt *tables = NULL;
  nvm_status status =
      tabulate(&w, &program->ctors[def->first], objs[NVM_Linearize_src(pc)], &tables);
  if (w.room) nvm_storage_release(vm->heap, w.room);
  if (w.numbers) nvm_storage_release(vm->heap, w.numbers);
  if (w.block) nvm_storage_release(vm->heap, w.block);
  if (NVM_LIKELY(status == NVM_OK))
    set_object(vm->heap, &objs[NVM_Linearize_dst(pc)], &tables->header);
  else if (tables)
    nvm_release(vm->heap, &tables->header);
  return status;
}
