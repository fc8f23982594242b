/* JSON values <-> values of a program, in the forms of `nimblevm run` (nimblevm/cli/values.py):
 *
 *   number, true, false             rank-0 tensor of the parameter's dtype
 *   [[1, 2], [3, 4]]                tensor of the parameter's dtype; [] takes the sizes that its
 *                                   type has, else 0
 *   {"dtype": "float32", "shape": [0, 4], "data": []}
 *                                   tensor, said in full; data nested or flat
 *   {"file": "x.npy"}               tensor from a file
 *   [a, b]                          tuple, a value for each field
 *   {"constructor": "Node", "fields": [a, b]}
 *                                   ADT value; "Leaf" alone is one without fields
 *   [a, b, c]                       also a list: an ADT of Cons and Nil
 *
 * Nothing recurses: values may be a million cells deep. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

enum { SHOWN = 60, STEPS = 10, ANY_TYPE = -1 };

/* A type in the environment of the data type that it stands in: what its variables are. */
typedef struct bound {
  int64_t type; /* ANY_TYPE: open */
  size_t env;   /* 1 + place in `envs`; 0: none */
} bound;

/* What is still to be done: a value, or (node NULL) a composite of the values before. */
typedef struct task {
  const json_node *node;
  bound type;
  uint32_t ctor, n_fields;
  size_t n_cells; /* a list: that many Cons and a Nil, made at once */
} task;

typedef struct converter {
  const target *to;
  const json_node *root;
  const char *place;
  arguments *out;
  task *tasks;
  size_t n_tasks, tasks_capacity;
  bound *envs; /* each: a bound whose `type` counts those that follow */
  size_t n_envs, envs_capacity;
} converter;

/* --- messages --- */

/* ".Node[1][0]": the way from the argument to a value in it, found by descending again. */
static const char *path_to(const converter *c, const json_node *wanted) {
  typedef struct step {
    const char *name;
    uint32_t index;
  } step;
  step *steps = NULL;
  size_t count = 0, capacity = 0;
  const char *constructor = NULL;
  const json_node *at = c->root;
  while (at && at != wanted && (at->kind == JSON_ARRAY || at->kind == JSON_OBJECT)) {
    const int is_object = at->kind == JSON_OBJECT;
    const json_node *name = json_member(at, "constructor");
    const json_node *part = at + 1, *next = NULL;
    for (uint32_t i = 0; i < at->count; i++, part += part->span) {
      part += is_object;
      if (wanted < part || wanted >= part + part->span) continue;
      if (!is_object) PUSH(steps, count, capacity, ((step){constructor, i}));
      next = part;
      break;
    }
    constructor = is_object && name && name->kind == JSON_STRING ? name->u.text : NULL;
    at = next;
  }
  const size_t room = 2 * STEPS * 100 + 64 + strlen(c->place);
  char *text = keep(room);
  size_t used = (size_t)snprintf(text, room, "%.200s", c->place);
  for (size_t i = 0; i < count; i++) {
    if (count > 2 * STEPS && i == STEPS) {
      used += (size_t)snprintf(text + used, room - used, " (%zu more) ", count - 2 * STEPS);
      i = count - STEPS;
    }
    used += (size_t)snprintf(text + used, room - used, "%s%.60s[%u]", steps[i].name ? "." : "",
                             steps[i].name ? steps[i].name : "", steps[i].index);
  }
  return text;
}

static const char *shown(const json_node *node) {
  char *text = keep(2 * SHOWN), digits[NUMBER_BYTES];
  switch (node->kind) {
    case JSON_ARRAY:
      snprintf(text, 2 * SHOWN, "an array of %u", node->count);
      break;
    case JSON_OBJECT:
      snprintf(text, 2 * SHOWN, "an object with %s%.*s%s", node->count ? "\"" : "no names", SHOWN,
               node->count ? node[1].u.text : "", node->count ? "\", ..." : "");
      break;
    case JSON_STRING:
      snprintf(text, 2 * SHOWN, "\"%.*s\"%s", SHOWN, node->u.text,
               node->count > SHOWN ? "..." : "");
      break;
    case JSON_INT:
      if (node->too_large) return "an integer of more than 64 bits";
      snprintf(text, 2 * SHOWN, "%s%llu", node->negative ? "-" : "",
               (unsigned long long)node->size);
      break;
    case JSON_FLOAT:
      snprintf(text, 2 * SHOWN, "%s", double_text(node->u.number, digits));
      break;
    default:
      return node->kind == JSON_NULL ? "null" : node->size ? "true" : "false";
  }
  return text;
}

static const char *type_text(const converter *c, int64_t type) {
  char *text = keep(256);
  if (type == ANY_TYPE) return "any type";
  nvm_program_type_text(c->to->program, c->to->function, (uint32_t)type, text, 256);
  return text;
}

static _Noreturn void wrong(const converter *c, const json_node *node, const char *wanted) {
  mistake("%s: expected %s, got %s", path_to(c, node), wanted, shown(node));
}

/* --- tensors --- */

static nvm_arg tensor_of(int32_t dtype, uint32_t rank, const int64_t *sizes, void *data) {
  int64_t *shape = keep((rank + 1) * sizeof *shape);
  for (uint32_t a = 0; a < rank; a++) shape[a] = sizes[a];
  return nvm_arg_tensor(dtype, rank, shape, data);
}

/* One number of a tensor. */
static void put_number(const converter *c, const json_node *node, int32_t dtype, const char *wanted,
                       void *to) {
  if (dtype == NVM_DTYPE_BOOL) {
    if (node->kind != JSON_BOOL) wrong(c, node, wanted);
    *(uint8_t *)to = (uint8_t)node->size;
  } else if (is_integer(dtype)) {
    if (node->kind != JSON_INT) wrong(c, node, wanted);
    if (node->too_large || !integer_fits(dtype, node->negative, node->size))
      mistake("%s: %s does not fit %s", path_to(c, node), shown(node), dtype_name(dtype));
    write_integer(dtype, node->negative, node->size, to);
  } else {
    if (node->kind != JSON_INT && node->kind != JSON_FLOAT) wrong(c, node, wanted);
    if (!write_float(dtype, node->u.number, to) ||
        (node->kind == JSON_INT && isinf(node->u.number)))
      mistake("%s: a number is too large for %s", path_to(c, node), dtype_name(dtype));
  }
}

/* An array of nested JSON arrays. */
static nvm_arg nested(const converter *c, const json_node *value, int32_t dtype,
                      const char *wanted) {
  int64_t shape[MAX_RANK], index[MAX_RANK] = {0};
  uint32_t rank = 0, depth = 0;
  for (const json_node *at = value; at->kind == JSON_ARRAY; at++) {
    if (rank == MAX_RANK) mistake("%s: an array of more than %d axes", path_to(c, value), MAX_RANK);
    shape[rank++] = at->count;
    if (at->count == 0) break;
  }
  const size_t count = shape_count(dtype, rank, shape, c->place);
  if (count > value->span) mistake("%s: ragged array", path_to(c, value));
  char *data = keep(count * dtype_size(dtype)), *to = data;
  const json_node *end = value + value->span;
  for (const json_node *at = value; at < end; at++) { /* preorder, which is row-major */
    if (depth < rank) {
      if (at->kind != JSON_ARRAY || at->count != shape[depth]) {
        if (at->kind == JSON_ARRAY)
          mistake("%s: ragged array: next to an array of %lld stands one of %u", path_to(c, at),
                  (long long)shape[depth], at->count);
        mistake("%s: ragged array: next to an array of %lld stands %s", path_to(c, at),
                (long long)shape[depth], shown(at));
      }
      if (at->count) {
        index[depth++] = 0;
        continue;
      }
    } else {
      if (at->kind == JSON_ARRAY)
        mistake("%s: ragged array: next to a number stands %s", path_to(c, at), shown(at));
      put_number(c, at, dtype, wanted, to);
      to += dtype_size(dtype);
      at += at->span - 1;
    }
    while (depth > 0 && ++index[depth - 1] == shape[depth - 1]) depth--;
  }
  return tensor_of(dtype, rank, shape, data);
}

/* The forms that say dtype and shape, or name a file. */
static nvm_arg explicit_tensor(const converter *c, const json_node *value) {
  const json_node *file = json_member(value, "file"), *dtype = json_member(value, "dtype");
  const json_node *shape = json_member(value, "shape"), *data = json_member(value, "data");
  if (value->count == 1 && file && file->kind == JSON_STRING) return read_npy(file->u.text);
  if (value->count != 3 || !dtype || !shape || !data)
    wrong(c, value, "{\"file\": ...} or {\"dtype\": ..., \"shape\": [...], \"data\": [...]}");
  const int32_t number =
      dtype->kind == JSON_STRING ? dtype_of_name(dtype->u.text, dtype->count) : -1;
  if (number < 0) mistake("%s: no dtype %s", path_to(c, dtype), shown(dtype));
  int64_t sizes[MAX_RANK];
  if (shape->kind != JSON_ARRAY || shape->count > MAX_RANK)
    wrong(c, shape, "a shape of at most 8 whole numbers");
  for (uint32_t a = 0; a < shape->count; a++) {
    const json_node *size = shape + 1 + a;
    if (size->kind != JSON_INT || size->negative || size->too_large || size->size > INT64_MAX)
      wrong(c, shape, "a shape of at most 8 whole numbers");
    sizes[a] = (int64_t)size->size;
  }
  nvm_arg arg = nested(c, data, number, dtype_name(number));
  const size_t have = shape_count(number, arg.rank, arg.shape, c->place);
  if (have != shape_count(number, shape->count, sizes, c->place))
    mistake("%s: %zu numbers don't fill the shape", path_to(c, value), have);
  return tensor_of(number, shape->count, sizes, (void *)(uintptr_t)arg.data);
}

static void add_tensor(converter *c, const json_node *node, int64_t type_index,
                       const nvm_type_info *type) {
  const char *wanted = type_text(c, type_index);
  nvm_arg arg =
      node->kind == JSON_OBJECT ? explicit_tensor(c, node) : nested(c, node, type->dtype, wanted);
  if (node->kind == JSON_ARRAY && arg.rank < type->rank &&
      shape_count(arg.dtype, arg.rank, arg.shape, c->place) == 0) {
    int64_t sizes[MAX_RANK]; /* [] does not tell the sizes behind the empty axis */
    for (uint32_t a = 0; a < type->rank; a++)
      sizes[a] = a < arg.rank ? arg.shape[a] : type->dims[a] >= 0 ? type->dims[a] : 0;
    arg = tensor_of(arg.dtype, type->rank, sizes, (void *)(uintptr_t)arg.data);
  }
  int fits = arg.dtype == type->dtype && arg.rank == type->rank;
  for (uint32_t a = 0; fits && a < arg.rank; a++)
    fits = type->dims[a] < 0 || type->dims[a] == arg.shape[a];
  if (!fits) {
    char got[200];
    size_t used = (size_t)snprintf(got, sizeof got, "%s of shape [", dtype_name(arg.dtype));
    for (uint32_t a = 0; a < arg.rank; a++)
      used += (size_t)snprintf(got + used, sizeof got - used, "%s%lld", a ? ", " : "",
                               (long long)arg.shape[a]);
    mistake("%s: expected %s, got %s]", path_to(c, node), wanted, got);
  }
  PUSH(c->out->items, c->out->count, c->out->capacity, arg);
}

/* --- types --- */

static bound resolve(const converter *c, int64_t type, size_t env) {
  nvm_type_info info;
  if (type == ANY_TYPE) return (bound){ANY_TYPE, 0};
  if (nvm_program_type_info(c->to->program, (uint32_t)type, &info)) failed(c->place);
  if (info.kind != NVM_TYPE_VARIABLE) return (bound){type, env};
  if (env == 0 || info.number >= c->envs[env - 1].type) return (bound){ANY_TYPE, 0};
  return c->envs[env + (size_t)info.number];
}

/* The environment of a data type's fields: its arguments. A recursive type mostly gets the same
 * again.
 */
static size_t enter(converter *c, const nvm_type_info *adt, size_t env) {
  const size_t at = c->n_envs;
  PUSH(c->envs, c->n_envs, c->envs_capacity, ((bound){adt->n_parts, 0}));
  for (uint32_t k = 0; k < adt->n_parts; k++) {
    const bound part = resolve(c, adt->parts[k], env);
    PUSH(c->envs, c->n_envs, c->envs_capacity, part);
  }
  if (env) {
    int same = c->envs[env - 1].type == (int64_t)adt->n_parts;
    for (uint32_t k = 0; same && k < adt->n_parts; k++)
      same = c->envs[env + k].type == c->envs[at + 1 + k].type &&
             c->envs[env + k].env == c->envs[at + 1 + k].env;
    if (same) {
      c->n_envs = at;
      return env;
    }
  }
  return at + 1;
}

static void later(converter *c, task next) { PUSH(c->tasks, c->n_tasks, c->tasks_capacity, next); }

/* Push the parts of a composite, the last one first, behind what puts them together. */
static void add_parts(converter *c, const json_node *first, uint32_t count, const bound *types,
                      int one_type) {
  const size_t start = c->n_tasks;
  const json_node *node = first;
  for (uint32_t k = 0; k < count; k++, node += node->span)
    later(c, (task){.node = node, .type = types[one_type ? 0 : k]});
  for (size_t i = start, j = c->n_tasks; i + 1 < j; i++) {
    j--;
    const task other = c->tasks[i];
    c->tasks[i] = c->tasks[j];
    c->tasks[j] = other;
  }
}

static void add_tuple(converter *c, const json_node *node, bound type, const nvm_type_info *info) {
  if (node->kind != JSON_ARRAY || node->count != info->n_parts) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "an array of %u for a tuple", info->n_parts);
    wrong(c, node, wanted);
  }
  bound *types = keep((info->n_parts + 1) * sizeof *types);
  for (uint32_t k = 0; k < info->n_parts; k++) types[k] = resolve(c, info->parts[k], type.env);
  later(c, (task){.ctor = 0, .n_fields = info->n_parts});
  add_parts(c, node + 1, node->count, types, 0);
}

/* --- data types --- */

typedef struct constructor {
  const char *name;
  uint32_t index, n_fields;
  const uint32_t *fields;
} constructor;

typedef struct data_type {
  const char *name;
  uint32_t first, count;
  constructor cons, nil; /* set (name) if it is a list */
} data_type;

static constructor constructor_at(const converter *c, uint32_t index) {
  int32_t adt;
  uint32_t tag;
  constructor made = {.index = index};
  made.name =
      nvm_program_constructor(c->to->program, index, &adt, &tag, &made.n_fields, &made.fields);
  return made;
}

static data_type data_type_at(const converter *c, uint32_t index) {
  uint32_t n_params;
  data_type made = {0};
  made.name = nvm_program_adt(c->to->program, index, &n_params, &made.first, &made.count);
  if (made.count != 2) return made;
  constructor a = constructor_at(c, made.first), b = constructor_at(c, made.first + 1);
  if (strcmp(a.name, "Cons") != 0) {
    const constructor other = a;
    a = b;
    b = other;
  }
  if (strcmp(a.name, "Cons") != 0 || strcmp(b.name, "Nil") != 0 || a.n_fields != 2 || b.n_fields)
    return made;
  nvm_type_info tail;
  if (nvm_program_type_info(c->to->program, a.fields[1], &tail)) failed(c->place);
  if (tail.kind == NVM_TYPE_ADT && (uint32_t)tail.number == index) {
    made.cons = a;
    made.nil = b;
  }
  return made;
}

static const char *constructor_names(const converter *c, const data_type *adt) {
  const size_t room = 400;
  char *text = keep(room);
  size_t used = 0;
  for (uint32_t i = 0; i < adt->count && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%.60s", i ? ", " : "",
                             constructor_at(c, adt->first + i).name);
  return used ? text : "none";
}

static _Noreturn void wrong_adt(const converter *c, const json_node *node, const data_type *adt) {
  const size_t room = 700;
  char *text = keep(room);
  snprintf(text, room, "%s{\"constructor\": ..., \"fields\": [...]} for %.100s, one of %s",
           adt->cons.name ? "an array or " : "", adt->name, constructor_names(c, adt));
  wrong(c, node, text);
}

static int is_named(const char *text, const data_type *adt, const constructor *ctor) {
  const size_t length = strlen(adt->name);
  return strcmp(text, ctor->name) == 0 ||
         (strncmp(text, adt->name, length) == 0 && text[length] == '.' &&
          strcmp(text + length + 1, ctor->name) == 0);
}

static void add_constructor(converter *c, const json_node *node, const data_type *adt, size_t env) {
  const json_node *name = node, *fields = NULL;
  if (node->kind == JSON_OBJECT) {
    name = json_member(node, "constructor");
    fields = json_member(node, "fields");
    if (!name || node->count != 1u + (fields != NULL) || (fields && fields->kind != JSON_ARRAY))
      wrong_adt(c, node, adt);
  }
  if (name->kind != JSON_STRING) wrong_adt(c, node, adt);
  constructor found = {0};
  for (uint32_t i = 0; i < adt->count && !found.name; i++) {
    const constructor one = constructor_at(c, adt->first + i);
    if (is_named(name->u.text, adt, &one)) found = one;
  }
  if (!found.name)
    mistake("%s: %s has no constructor \"%.60s\"; it has %s", path_to(c, node), adt->name,
            name->u.text, constructor_names(c, adt));
  const uint32_t count = fields ? fields->count : 0;
  if (count != found.n_fields)
    mistake("%s: constructor %s takes %u field%s, got %u", path_to(c, node), found.name,
            found.n_fields, found.n_fields == 1 ? "" : "s", count);
  bound few[8], *types = count > 8 ? keep(count * sizeof *types) : few;
  for (uint32_t k = 0; k < count; k++) types[k] = resolve(c, found.fields[k], env);
  later(c, (task){.ctor = found.index, .n_fields = count});
  if (fields) add_parts(c, fields + 1, count, types, 0);
}

static void add_adt(converter *c, const json_node *node, bound type, const nvm_type_info *info) {
  const data_type adt = data_type_at(c, (uint32_t)info->number);
  const size_t env = enter(c, info, type.env);
  if (node->kind != JSON_ARRAY) {
    add_constructor(c, node, &adt, env);
    return;
  }
  if (!adt.cons.name) wrong_adt(c, node, &adt);
  const bound element = resolve(c, adt.cons.fields[0], env);
  later(c, (task){.ctor = adt.cons.index, .n_fields = adt.nil.index, .n_cells = node->count + 1u});
  add_parts(c, node + 1, node->count, &element, 1);
}

/* --- the loop --- */

static void add_value(converter *c, const json_node *node, bound type) {
  nvm_type_info info;
  if (type.type == ANY_TYPE) {
    if (node->kind != JSON_OBJECT)
      wrong(c, node, "{\"dtype\": ..., \"shape\": [...], \"data\": [...]} (the type is open here)");
    const nvm_arg arg = explicit_tensor(c, node);
    PUSH(c->out->items, c->out->count, c->out->capacity, arg);
    return;
  }
  if (nvm_program_type_info(c->to->program, (uint32_t)type.type, &info)) failed(c->place);
  switch (info.kind) {
    case NVM_TYPE_TENSOR:
      add_tensor(c, node, type.type, &info);
      break;
    case NVM_TYPE_TUPLE:
      add_tuple(c, node, type, &info);
      break;
    case NVM_TYPE_ADT:
      add_adt(c, node, type, &info);
      break;
    default:
      mistake(
          "%s: a value of type %s can't be written down; call a function that takes only tensors, "
          "tuples and data types",
          path_to(c, node), type_text(c, type.type));
  }
}

static void put_together(converter *c, const task *parts) {
  if (parts->n_cells == 0) {
    PUSH(c->out->items, c->out->count, c->out->capacity, nvm_arg_adt(parts->ctor, parts->n_fields));
    return;
  }
  PUSH(c->out->items, c->out->count, c->out->capacity, nvm_arg_adt(parts->n_fields, 0)); /* Nil */
  for (size_t i = 1; i < parts->n_cells; i++)
    PUSH(c->out->items, c->out->count, c->out->capacity, nvm_arg_adt(parts->ctor, 2));
}

void add_json(const target *to, const json_node *node, uint32_t type, const char *place,
              arguments *out) {
  converter c = {.to = to, .root = node, .place = place, .out = out};
  later(&c, (task){.node = node, .type = resolve(&c, type, 0)});
  while (c.n_tasks) {
    const task next = c.tasks[--c.n_tasks];
    if (next.node)
      add_value(&c, next.node, next.type);
    else
      put_together(&c, &next);
  }
}
