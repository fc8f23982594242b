/* The header of a program, table after table; constants and kernels have files of their own. */
#include "program_tables.h"

#include <stdlib.h>
#include <string.h>

#include "constant_tables.h"
#include "generated/nvm_dtype.h"
#include "kernel_tables.h"
#include "table_fields.h"

/* --- producer, sections, devices -------------------------------------------------------------- */

static nvm_status read_producer(nvm_loader *loader) {
  uint32_t count = 0;
  const char **producer = NULL;
  NVM_TRY(nvm_mp_map(&loader->mp, "producer", &count));
  NVM_TABLE(loader, 2 * (size_t)count + 1, producer);
  for (uint32_t i = 0; i < 2 * count; i++) {
    NVM_TRY(nvm_read_string(loader, "producer", &producer[i]));
  }
  loader->program->producer = producer;
  return NVM_OK;
}

static nvm_status read_section(nvm_loader *loader, uint32_t i) {
  nvm_mp *mp = &loader->mp;
  uint32_t kind = 0;
  int64_t offset = 0, size = 0;
  size_t digest_size = 0;
  NVM_TRY(nvm_mp_tuple(mp, "section", 5));
  NVM_TRY(nvm_mp_u32(mp, "kind", NVM_SECTION_EXTERNAL, &kind));
  NVM_TRY(nvm_mp_int(mp, "offset", 0, INT64_MAX, &offset));
  NVM_TRY(nvm_mp_int(mp, "size", 0, INT64_MAX, &size));
  NVM_TRY(nvm_mp_bin(mp, "digest", &loader->section_rows[i].digest, &digest_size));
  NVM_TRY(nvm_read_string(loader, "target", &loader->sections[i].target));
  if (digest_size != 32) return nvm_mp_fail(mp, "digest: expected 32 bytes, got %zu", digest_size);
  if (i < 3 ? kind != i : kind < 3) {
    return nvm_mp_fail(mp, "kind %u: sections 0, 1, 2 are bytecode, constants, kernel IR", kind);
  }
  loader->sections[i].kind = (uint8_t)kind;
  loader->sections[i].size = (size_t)size;
  loader->section_rows[i].offset = (uint64_t)offset;
  loader->section_rows[i].size = (uint64_t)size;
  return NVM_OK;
}

static nvm_status read_sections(nvm_loader *loader) {
  uint32_t count = 0;
  NVM_ROWS(loader, "sections", 39, count, loader->sections);
  if (count < 3) return nvm_mp_fail(&loader->mp, "expected at least 3 sections, got %u", count);
  NVM_TABLE(loader, count, loader->section_rows);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "sections", i);
    NVM_TRY(read_section(loader, i));
  }
  loader->program->sections = loader->sections;
  loader->program->n_sections = count;
  return NVM_OK;
}

static nvm_status read_names(nvm_loader *loader, const char *what, const char *const **out_names,
                             uint32_t *out_count) {
  uint32_t count = 0;
  const char **names = NULL;
  NVM_ROWS(loader, what, 1, count, names);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, what, i);
    NVM_TRY(nvm_read_string(loader, "name", &names[i]));
  }
  *out_names = names;
  *out_count = count;
  return NVM_OK;
}

static nvm_status read_devices(nvm_loader *loader) {
  nvm_program *p = loader->program;
  NVM_TRY(read_names(loader, "devices", &p->devices, &p->n_devices));
  if (p->n_devices < 1 || p->n_devices > NVM_MAX_DEVICES || strcmp(p->devices[0], "cpu") != 0) {
    return nvm_mp_fail(&loader->mp, "expected 1 .. %d devices, the first \"cpu\"", NVM_MAX_DEVICES);
  }
  for (uint32_t i = 0; i < p->n_devices && p->version > 1; i++) {
    const char *name = p->devices[i];
    nvm_at_row(loader, "devices", i);
    if (name[0] == 0 || name[0] == ',' || name[strlen(name) - 1] == ',' || strstr(name, ",,"))
      return nvm_mp_fail(&loader->mp, "expected backend names, commas between, got \"%s\"", name);
  }
  return NVM_OK;
}

/* --- types, ADTs, constructors ---------------------------------------------------------------- */

enum { TYPE_TENSOR, TYPE_TUPLE, TYPE_ADT, TYPE_FUNC, TYPE_REF, TYPE_VAR };

static nvm_status check_tensor_type(nvm_loader *loader, const nvm_type *type, uint32_t *out_slots) {
  const nvm_mp *mp = &loader->mp;
  if (type->n_words < 2 || type->n_words > 2 + NVM_MAX_RANK || type->words[1] < 0 ||
      type->words[1] >= NVM_DTYPE_COUNT) {
    return nvm_mp_fail(mp, "tensor type: expected a dtype and at most %d dims", NVM_MAX_RANK);
  }
  for (uint32_t i = 2; i < type->n_words; i++) {
    int64_t dim = type->words[i];
    if (dim < -1 - NVM_MAX_TYPE_INDEX) return nvm_mp_fail(mp, "dim %lld", (long long)dim);
    uint32_t slots = dim <= -2 ? (uint32_t)(-1 - dim) : 0;
    if (slots > *out_slots) *out_slots = slots;
  }
  return NVM_OK;
}

static nvm_status check_type(nvm_loader *loader, uint32_t index, const nvm_type *type) {
  const nvm_mp *mp = &loader->mp;
  uint32_t *slots = &loader->type_slots[index], *vars = &loader->type_vars[index];
  if (type->n_words == 0) return nvm_mp_fail(mp, "a type has no words");
  int64_t kind = type->words[0];
  if (kind == TYPE_TENSOR) return check_tensor_type(loader, type, slots);
  if (kind == TYPE_VAR) {
    if (type->n_words != 2 || type->words[1] < 0 || type->words[1] >= NVM_MAX_TYPE_INDEX) {
      return nvm_mp_fail(mp, "type variable: expected one index");
    }
    *vars = (uint32_t)type->words[1] + 1;
    return NVM_OK;
  }
  if (kind < TYPE_TUPLE || kind > TYPE_REF)
    return nvm_mp_fail(mp, "type kind %lld", (long long)kind);
  if ((kind == TYPE_ADT || kind == TYPE_FUNC) && type->n_words < 2) {
    return nvm_mp_fail(mp, "a type of kind %lld lacks a word", (long long)kind);
  }
  if (kind == TYPE_REF && type->n_words != 2) return nvm_mp_fail(mp, "a ref type has one content");
  for (uint32_t i = kind == TYPE_ADT ? 2 : 1; i < type->n_words; i++) {
    int64_t part = type->words[i];
    if (part < 0 || part >= index) {
      return nvm_mp_fail(mp, "refers to type %lld, expected an earlier one", (long long)part);
    }
    if (loader->type_slots[part] > *slots) *slots = loader->type_slots[part];
    if (loader->type_vars[part] > *vars) *vars = loader->type_vars[part];
  }
  return NVM_OK;
}

static nvm_status read_types(nvm_loader *loader) {
  uint32_t count = 0;
  nvm_type *types = NULL;
  NVM_ROWS(loader, "types", 2, count, types);
  NVM_TABLE(loader, count, loader->type_slots);
  NVM_TABLE(loader, count, loader->type_vars);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "types", i);
    NVM_TRY(
        nvm_read_ints(loader, "type", INT64_MIN, INT64_MAX, &types[i].words, &types[i].n_words));
    NVM_TRY(check_type(loader, i, &types[i]));
  }
  loader->program->types = types;
  loader->program->n_types = count;
  return NVM_OK;
}

static nvm_status read_adts(nvm_loader *loader) {
  nvm_program *p = loader->program;
  nvm_mp *mp = &loader->mp;
  uint32_t count = 0, next = 1;
  nvm_adt_def *adts = NULL;
  NVM_ROWS(loader, "adts", 5, count, adts);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "adts", i);
    NVM_TRY(nvm_mp_tuple(mp, "adt", 4));
    NVM_TRY(nvm_read_string(loader, "name", &adts[i].name));
    NVM_TRY(nvm_mp_u32(mp, "type parameters", NVM_MAX_TYPE_INDEX, &adts[i].n_type_params));
    NVM_TRY(nvm_mp_u32(mp, "first constructor", UINT32_MAX, &adts[i].first));
    NVM_TRY(nvm_mp_u32(mp, "constructors", INT32_MAX, &adts[i].count));
    if (adts[i].first != next || adts[i].count > UINT32_MAX - next) {
      return nvm_mp_fail(mp, "first constructor: expected %u, got %u", next, adts[i].first);
    }
    next += adts[i].count;
  }
  p->adts = adts;
  p->n_adts = count;
  for (uint32_t i = 0; i < p->n_types; i++) {
    const nvm_type *type = &p->types[i];
    if (type->words[0] != TYPE_ADT) continue;
    nvm_at_row(loader, "types", i);
    int64_t adt = type->words[1];
    if (adt < 0 || adt >= count) return nvm_mp_fail(mp, "there is no adt %lld", (long long)adt);
    if (type->n_words - 2 != adts[adt].n_type_params) {
      return nvm_mp_fail(mp, "adt %s takes %u type arguments, got %u", adts[adt].name,
                         adts[adt].n_type_params, type->n_words - 2);
    }
  }
  return NVM_OK;
}

static nvm_status read_ctor(nvm_loader *loader, uint32_t index, nvm_ctor *ctor) {
  nvm_program *p = loader->program;
  nvm_mp *mp = &loader->mp;
  int64_t adt = 0;
  uint32_t *fields = NULL;
  NVM_TRY(nvm_mp_tuple(mp, "constructor", 4));
  NVM_TRY(nvm_read_string(loader, "name", &ctor->name));
  NVM_TRY(nvm_mp_int(mp, "adt", -1, (int64_t)p->n_adts - 1, &adt));
  NVM_TRY(nvm_mp_u32(mp, "tag", UINT32_MAX, &ctor->tag));
  NVM_ROWS(loader, "fields", 1, ctor->n_fields, fields);
  ctor->adt = (int32_t)adt;
  if (index == 0) {
    if (adt != -1 || ctor->tag != 0 || ctor->n_fields != 0 || ctor->name[0] != 0) {
      return nvm_mp_fail(mp, "constructor 0 must be the tuple");
    }
    return NVM_OK;
  }
  if (adt < 0 || index - p->adts[adt].first != ctor->tag || ctor->tag >= p->adts[adt].count) {
    return nvm_mp_fail(mp, "constructor does not stand where its adt says");
  }
  for (uint32_t i = 0; i < ctor->n_fields; i++) {
    NVM_TRY(nvm_mp_u32(mp, "field", UINT32_MAX, &fields[i]));
    if (fields[i] >= p->n_types || loader->type_slots[fields[i]] > 0 ||
        loader->type_vars[fields[i]] > p->adts[adt].n_type_params) {
      return nvm_mp_fail(mp, "field %u: expected a type without dim slots, its variables < %u", i,
                         p->adts[adt].n_type_params);
    }
  }
  ctor->field_types = fields;
  return NVM_OK;
}

static nvm_status read_ctors(nvm_loader *loader) {
  nvm_program *p = loader->program;
  uint32_t count = 0, expected = 1;
  nvm_ctor *ctors = NULL;
  NVM_ROWS(loader, "constructors", 5, count, ctors);
  if (p->n_adts > 0) expected = p->adts[p->n_adts - 1].first + p->adts[p->n_adts - 1].count;
  if (count != expected) {
    return nvm_mp_fail(&loader->mp, "expected %u constructors, got %u", expected, count);
  }
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "constructors", i);
    NVM_TRY(read_ctor(loader, i, &ctors[i]));
  }
  p->ctors = ctors;
  p->n_ctors = count;
  return NVM_OK;
}

/* --- functions -------------------------------------------------------------------------------- */

/* A type that a function's signature mentions. */
static nvm_status read_signature_type(nvm_loader *loader, const char *what, uint32_t *out_type) {
  NVM_TRY(nvm_mp_u32(&loader->mp, what, UINT32_MAX, out_type));
  if (*out_type >= loader->program->n_types) {
    return nvm_mp_fail(&loader->mp, "%s: there is no type %u", what, *out_type);
  }
  return NVM_OK;
}

/* May a value of that type live in an int register? */
static int is_int_type(const nvm_program *p, uint32_t type) {
  const nvm_type *t = &p->types[type];
  return t->words[0] == TYPE_TENSOR && t->n_words == 2 && nvm_dtypes[t->words[1]].unboxable;
}

static nvm_status read_kind(nvm_loader *loader, const char *what, uint32_t kind, uint32_t type) {
  if (kind > 1) return nvm_mp_fail(&loader->mp, "%s: register kind %u", what, kind);
  if (kind == 1 && !is_int_type(loader->program, type)) {
    return nvm_mp_fail(&loader->mp, "%s: a value of type %u does not fit an int register", what,
                       type);
  }
  return NVM_OK;
}

static nvm_status read_params(nvm_loader *loader, nvm_function *f) {
  nvm_mp *mp = &loader->mp;
  nvm_param *params = NULL;
  const uint8_t *kinds = NULL;
  size_t n_kinds = 0;
  NVM_TRY(nvm_mp_key(mp, "params"));
  NVM_ROWS(loader, "params", 3, f->n_params, params);
  for (uint32_t i = 0; i < f->n_params; i++) {
    NVM_TRY(nvm_mp_tuple(mp, "parameter", 2));
    NVM_TRY(nvm_read_string(loader, "parameter name", &params[i].name));
    NVM_TRY(read_signature_type(loader, "parameter type", &params[i].type));
  }
  NVM_TRY(nvm_mp_key(mp, "kinds"));
  NVM_TRY(nvm_mp_bin(mp, "kinds", &kinds, &n_kinds));
  if (n_kinds != f->n_params) {
    return nvm_mp_fail(mp, "kinds: expected %u bytes, got %zu", f->n_params, n_kinds);
  }
  for (uint32_t i = 0; i < f->n_params; i++) {
    NVM_TRY(read_kind(loader, "kinds", kinds[i], params[i].type));
    params[i].kind = kinds[i];
    if (kinds[i] == 1) {
      f->n_int_params++;
    } else {
      f->n_obj_params++;
    }
  }
  f->params = params;
  f->kinds = kinds; /* the header lives as long as the program */
  return NVM_OK;
}

/* result, result_kind, ints, objs, code */
static nvm_status read_frame(nvm_loader *loader, uint32_t index, nvm_function *f,
                             uint64_t *next_word) {
  nvm_mp *mp = &loader->mp;
  uint32_t kind = 0;
  int64_t first = 0, n_words = 0;
  NVM_TRY(nvm_mp_key(mp, "result"));
  NVM_TRY(read_signature_type(loader, "result", &f->result_type));
  NVM_TRY(nvm_mp_key(mp, "result_kind"));
  NVM_TRY(nvm_mp_u32(mp, "result_kind", 1, &kind));
  NVM_TRY(read_kind(loader, "result_kind", kind, f->result_type));
  f->result_kind = (uint8_t)kind;
  NVM_TRY(nvm_mp_key(mp, "ints"));
  NVM_TRY(nvm_mp_u32(mp, "ints", NVM_MAX_REGISTERS, &f->n_ints));
  NVM_TRY(nvm_mp_key(mp, "objs"));
  NVM_TRY(nvm_mp_u32(mp, "objs", NVM_MAX_REGISTERS, &f->n_objs));
  if (f->n_int_params > f->n_ints || f->n_obj_params > f->n_objs) {
    return nvm_mp_fail(mp, "%u int and %u object parameters in %u and %u registers",
                       f->n_int_params, f->n_obj_params, f->n_ints, f->n_objs);
  }
  NVM_TRY(nvm_mp_key(mp, "code"));
  NVM_TRY(nvm_mp_tuple(mp, "code", 2));
  NVM_TRY(nvm_mp_int(mp, "first word", 0, UINT32_MAX, &first));
  NVM_TRY(nvm_mp_int(mp, "words", 1, INT32_MAX, &n_words));
  uint64_t in_section = loader->section_rows[NVM_SECTION_BYTECODE].size / 4;
  if ((uint64_t)first != *next_word || (uint64_t)n_words > in_section - *next_word) {
    return nvm_mp_fail(mp, "code: words %lld + %lld, expected them from %llu on and within %llu",
                       (long long)first, (long long)n_words, (unsigned long long)*next_word,
                       (unsigned long long)in_section);
  }
  loader->code_first[index] = (uint32_t)first;
  f->n_words = (uint32_t)n_words;
  *next_word += (uint64_t)n_words;
  return NVM_OK;
}

static nvm_status read_dims(nvm_loader *loader, nvm_function *f) {
  nvm_mp *mp = &loader->mp;
  nvm_dim_slot *dims = NULL;
  NVM_TRY(nvm_mp_key(mp, "dims"));
  NVM_ROWS(loader, "dims", 4, f->n_dims, dims);
  if (f->n_dims > NVM_MAX_TYPE_INDEX) return nvm_mp_fail(mp, "dims: %u are too many", f->n_dims);
  for (uint32_t i = 0; i < f->n_dims; i++) {
    int64_t param = 0;
    uint32_t used = 0;
    NVM_TRY(nvm_mp_tuple(mp, "dim", 3));
    NVM_TRY(nvm_read_string(loader, "dim name", &dims[i].name));
    NVM_TRY(nvm_mp_int(mp, "binding parameter", -1, (int64_t)f->n_params - 1, &param));
    NVM_TRY(nvm_read_ints(loader, "dim program", INT64_MIN, INT64_MAX, &dims[i].program,
                          &dims[i].n_words));
    dims[i].param = (int32_t)param;
    if (dims[i].n_words == 0) {
      dims[i].program = NULL;
      continue;
    }
    NVM_TRY(nvm_check_dim_program(mp, dims[i].program, dims[i].n_words, i, &used));
    if (used != dims[i].n_words) return nvm_mp_fail(mp, "dim program: words behind its end");
  }
  f->dims = dims;
  for (uint32_t i = 0; i <= f->n_params; i++) {
    uint32_t type = i < f->n_params ? f->params[i].type : f->result_type;
    if (loader->type_slots[type] > f->n_dims) {
      return nvm_mp_fail(mp, "type %u uses dim slot %u, the signature has %u", type,
                         loader->type_slots[type] - 1, f->n_dims);
    }
  }
  return NVM_OK;
}

static nvm_status read_checked(nvm_loader *loader, nvm_function *f) {
  nvm_mp *mp = &loader->mp;
  const char **checked = NULL;
  NVM_TRY(nvm_mp_key(mp, "checked"));
  NVM_ROWS(loader, "checked", 4, f->n_checked, checked);
  for (uint32_t i = 0; i < f->n_checked; i++) {
    int64_t param = 0;
    uint32_t axis = 0;
    NVM_TRY(nvm_mp_tuple(mp, "checked dim", 3));
    NVM_TRY(nvm_mp_int(mp, "parameter", 0, (int64_t)f->n_params - 1, &param));
    NVM_TRY(nvm_mp_u32(mp, "axis", NVM_MAX_RANK - 1, &axis));
    NVM_TRY(nvm_read_string(loader, "text", &checked[i]));
  }
  f->checked = checked;
  return NVM_OK;
}

static nvm_status read_function(nvm_loader *loader, uint32_t index, uint64_t *next_word) {
  nvm_mp *mp = &loader->mp;
  nvm_function *f = &loader->functions[index];
  const uint8_t *spans = NULL;
  size_t span_bytes = 0;
  NVM_TRY(nvm_mp_record(mp, "function", 12));
  NVM_TRY(nvm_mp_key(mp, "name"));
  NVM_TRY(nvm_read_string(loader, "name", &f->name));
  NVM_TRY(nvm_mp_key(mp, "public"));
  NVM_TRY(nvm_mp_bool(mp, "public", &f->is_public));
  NVM_TRY(read_params(loader, f));
  NVM_TRY(read_frame(loader, index, f, next_word));
  NVM_TRY(read_dims(loader, f));
  NVM_TRY(read_checked(loader, f));
  NVM_TRY(nvm_mp_key(mp, "spans"));
  NVM_TRY(nvm_mp_bin(mp, "spans", &spans, &span_bytes));
  if (span_bytes > INT32_MAX) return nvm_mp_fail(mp, "spans: %zu bytes", span_bytes);
  f->spans = spans;
  f->n_span_bytes = (uint32_t)span_bytes;
  return NVM_OK;
}

typedef struct named {
  const char *name;
  uint32_t index;
} named;

static int by_name(const void *a, const void *b) {
  return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* The functions' order by name; refuses two of one name. */
static nvm_status sort_names(nvm_loader *loader) {
  nvm_program *p = loader->program;
  named *order = NULL;
  uint32_t *indices = NULL;
  NVM_TABLE(loader, p->n_functions, order);
  NVM_TABLE(loader, p->n_functions, indices);
  for (uint32_t i = 0; i < p->n_functions; i++) order[i] = (named){loader->functions[i].name, i};
  if (p->n_functions > 0) qsort(order, p->n_functions, sizeof *order, by_name);
  for (uint32_t i = 0; i < p->n_functions; i++) {
    if (i > 0 && strcmp(order[i].name, order[i - 1].name) == 0) {
      return nvm_mp_fail(&loader->mp, "two functions are named %s", order[i].name);
    }
    indices[i] = order[i].index;
  }
  p->by_name = indices;
  return NVM_OK;
}

static nvm_status read_functions(nvm_loader *loader) {
  nvm_program *p = loader->program;
  uint32_t count = 0;
  uint64_t next_word = 0, size = loader->section_rows[NVM_SECTION_BYTECODE].size;
  NVM_ROWS(loader, "functions", 90, count, loader->functions);
  NVM_TABLE(loader, count, loader->code_first);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "functions", i);
    NVM_TRY(read_function(loader, i, &next_word));
  }
  if (size % 4 != 0 || next_word != size / 4) {
    return nvm_mp_fail(&loader->mp, "the functions have %llu words of code, the section %llu bytes",
                       (unsigned long long)next_word, (unsigned long long)size);
  }
  p->functions = loader->functions;
  p->n_functions = count;
  return sort_names(loader);
}

/* --- notes, sources, spans -------------------------------------------------------------------- */

static nvm_status read_notes(nvm_loader *loader) {
  nvm_mp *mp = &loader->mp;
  uint32_t count = 0;
  nvm_note *notes = NULL;
  NVM_ROWS(loader, "notes", 5, count, notes);
  if (count < 1) return nvm_mp_fail(mp, "notes: entry 0 is missing");
  for (uint32_t i = 0; i < count; i++) {
    int64_t source = 0;
    nvm_at_row(loader, "notes", i);
    NVM_TRY(nvm_mp_tuple(mp, "note", 4));
    NVM_TRY(nvm_read_string(loader, "text", &notes[i].text));
    NVM_TRY(nvm_mp_int(mp, "source", -1, INT32_MAX, &source));
    NVM_TRY(nvm_mp_u32(mp, "line", UINT32_MAX, &notes[i].line));
    NVM_TRY(nvm_mp_u32(mp, "column", UINT32_MAX, &notes[i].column));
    notes[i].source = (int32_t)source;
  }
  if (notes[0].text[0] != 0 || notes[0].source != -1) {
    return nvm_mp_fail(mp, "note 0 must be empty");
  }
  loader->program->notes = notes;
  loader->program->n_notes = count;
  return NVM_OK;
}

static nvm_status check_spans(nvm_loader *loader, const nvm_function *f) {
  const uint8_t *at = f->spans, *end = at + f->n_span_bytes;
  uint64_t pc = 0;
  while (at != end) {
    nvm_span span;
    if (!nvm_read_span(&at, end, &span)) {
      return nvm_mp_fail(&loader->mp, "spans: an entry is cut or too large");
    }
    pc += span.words;
    if (pc >= f->n_words || span.source > loader->program->n_sources) {
      return nvm_mp_fail(&loader->mp, "spans: word %llu of %u, source %u of %u",
                         (unsigned long long)pc, f->n_words, span.source,
                         loader->program->n_sources);
    }
  }
  return NVM_OK;
}

static nvm_status read_sources(nvm_loader *loader) {
  nvm_program *p = loader->program;
  NVM_TRY(read_names(loader, "sources", &p->sources, &p->n_sources));
  for (uint32_t i = 0; i < p->n_notes; i++) {
    nvm_at_row(loader, "notes", i);
    if (p->notes[i].source >= 0 && (uint32_t)p->notes[i].source >= p->n_sources) {
      return nvm_mp_fail(&loader->mp, "there is no source %d", p->notes[i].source);
    }
  }
  for (uint32_t i = 0; i < p->n_functions; i++) {
    nvm_at_row(loader, "functions", i);
    NVM_TRY(check_spans(loader, &p->functions[i]));
  }
  return NVM_OK;
}

nvm_status nvm_read_tables(nvm_loader *loader, const uint8_t *header, size_t size) {
  static const struct {
    const char *key;
    nvm_status (*read)(nvm_loader *);
  } parts[] = {{"producer", read_producer},
               {"sections", read_sections},
               {"devices", read_devices},
               {"types", read_types},
               {"adts", read_adts},
               {"constructors", read_ctors},
               {"functions", read_functions},
               {"weights", nvm_read_weights},
               {"weights_file", nvm_read_weights_file},
               {"constants", nvm_read_constants},
               {"kernels", nvm_read_kernels},
               {"notes", read_notes},
               {"sources", read_sources}};
  const uint32_t count = sizeof parts / sizeof parts[0];
  nvm_mp_init(&loader->mp, header, size);
  NVM_TRY(nvm_mp_record(&loader->mp, "header", count));
  for (uint32_t i = 0; i < count; i++) {
    loader->mp.table = NULL;
    NVM_TRY(nvm_mp_key(&loader->mp, parts[i].key));
    NVM_TRY(parts[i].read(loader));
  }
  loader->mp.table = NULL;
  if (loader->mp.at != loader->mp.end) {
    return nvm_mp_fail(&loader->mp, "bytes behind the end of the header's map");
  }
  return NVM_OK;
}
