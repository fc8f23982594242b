/* nvm-run: run a function of an executable from the command line. A user of nvm_api.h like any
 * other. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

static const char usage[] =
    "usage: nvm-run FILE.nvm [INPUT...] [OPTION...]\n"
    "\n"
    "Run a function of an executable; print what it returns and the time that it took.\n"
    "\n"
    "Inputs, for the parameters by name, or without a name in order:\n"
    "  x=x.npy              an array\n"
    "  steps=3  flag=true   a scalar of the parameter's dtype\n"
    "  x=[[1, 2], [3, 4]]   JSON, or x=FILE.json\n"
    "  x=random:5x300       random numbers of that shape (--seed)\n"
    "  x=all.npz:x          an array of an archive that numpy.savez wrote\n"
    "  all.npz, all.json    several parameters by name\n"
    "JSON: numbers and nested arrays are tensors of the parameter's dtype, an array is a tuple or "
    "a\n"
    "List, {\"constructor\": \"Node\", \"fields\": [...]} is a value of a data type (\"Leaf\" "
    "alone has no\n"
    "fields), {\"file\": \"x.npy\"} reads a tensor, {\"dtype\": \"float32\", \"shape\": [0, 4], "
    "\"data\": []}\n"
    "says all of it.\n"
    "\n"
    "  -f, --function NAME  function to call (main)\n"
    "  -i, --input INPUT    an input, as above\n"
    "  -o, --output FILE    write the result: .npy for a tensor, .json for any value, .npz or "
    "DIR/ for\n"
    "                       a tuple of tensors (result0, ..., DIR/result0.npy, ...)\n"
    "  -l, --list           list functions and data types\n"
    "      --threads N      the most threads that kernels may use (1)\n"
    "      --device NAME    backend of those that FILE is for; cpu: the host alone (the first one "
    "here)\n"
    "      --fallback       the host stands in for devices that are not here\n"
    "      --no-native      never run machine code of FILE\n"
    "      --weights FILE   .safetensors file of weights that FILE.nvm leaves out (default: the "
    "one it\n"
    "                       names beside itself)\n"
    "      --verify         check the digest of the constants too\n"
    "      --max-instructions N  --max-bytes N  --max-objects N  --max-frames N  --seconds S\n"
    "                       limits of a run; N bytes also bound what binding weights takes\n"
    "      --repeat N       run N times and print the least and the median time\n"
    "      --seed N         of random inputs (0)\n"
    "      --stats          print the VM's counters\n"
    "  -q, --quiet          print nothing but errors\n"
    "      --version        print version and build\n"
    "  -h, --help\n"
    "\n"
    "Exit code: 0, or 2 after an error, which is one paragraph on stderr.\n";

typedef struct options {
  const char *file, *function, *output, *weights;
  const char **inputs;
  size_t n_inputs, inputs_capacity;
  int list, stats, quiet;
  uint32_t flags;
  uint64_t repeat, seed;
  nvm_vm_options vm;
} options;

static nvm_vm *running;

static void stop(int signal_number) {
  (void)signal_number;
  if (running) nvm_vm_cancel(running);
}

/* --- options ---------------------------------------------------------------------------------- */

static uint64_t whole(const char *name, const char *text, uint64_t least, uint64_t most) {
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (errno || *end || end == text || *text == '-' || value < least || value > most)
    mistake("%s takes a whole number of at least %llu and at most %llu, got %s", name,
            (unsigned long long)least, (unsigned long long)most, text);
  return value;
}

static uint64_t nanoseconds(const char *name, const char *text) {
  char *end;
  const double seconds = strtod(text, &end);
  if (*end || end == text || !(seconds > 0 && seconds < 1e9))
    mistake("%s takes a number of seconds above 0, got %s", name, text);
  return seconds < 1e-9 ? 1 : (uint64_t)(seconds * 1e9);
}

/* An option without a value; 0: there is none of that name. */
static int set_flag(options *o, const char *name) {
  if (!strcmp(name, "-l") || !strcmp(name, "--list"))
    o->list = 1;
  else if (!strcmp(name, "-q") || !strcmp(name, "--quiet"))
    o->quiet = 1;
  else if (!strcmp(name, "--stats"))
    o->stats = 1;
  else if (!strcmp(name, "--fallback"))
    o->vm.fallback = 1;
  else if (!strcmp(name, "--no-native"))
    o->flags |= NVM_LOAD_NO_NATIVE;
  else if (!strcmp(name, "--verify"))
    o->flags |= NVM_LOAD_VERIFY_FULL;
  else
    return 0;
  return 1;
}

static void set_value(options *o, const char *name, const char *value) {
  nvm_limits *limits = &o->vm.limits;
  if (!strcmp(name, "-f") || !strcmp(name, "--function"))
    o->function = value;
  else if (!strcmp(name, "-i") || !strcmp(name, "--input"))
    PUSH(o->inputs, o->n_inputs, o->inputs_capacity, value);
  else if (!strcmp(name, "-o") || !strcmp(name, "--output"))
    o->output = value;
  else if (!strcmp(name, "--weights"))
    o->weights = value;
  else if (!strcmp(name, "--device"))
    o->vm.device = value;
  else if (!strcmp(name, "--threads"))
    o->vm.threads = (int32_t)whole(name, value, 1, INT32_MAX);
  else if (!strcmp(name, "--max-instructions"))
    limits->instructions = whole(name, value, 1, UINT64_MAX);
  else if (!strcmp(name, "--max-bytes"))
    limits->bytes = whole(name, value, 1, UINT64_MAX);
  else if (!strcmp(name, "--max-objects"))
    limits->objects = whole(name, value, 1, UINT64_MAX);
  else if (!strcmp(name, "--max-frames"))
    limits->frames = whole(name, value, 1, UINT64_MAX);
  else if (!strcmp(name, "--seconds"))
    limits->nanoseconds = nanoseconds(name, value);
  else if (!strcmp(name, "--repeat"))
    o->repeat = whole(name, value, 1, UINT32_MAX);
  else if (!strcmp(name, "--seed"))
    o->seed = whole(name, value, 0, UINT64_MAX);
  else
    mistake("no option %s; nvm-run --help lists them", name);
}

static int takes_value(const char *name) {
  static const char *const names[] = {
      "-f",           "--function",         "-i",          "--input",
      "-o",           "--output",           "--weights",   "--device",
      "--threads",    "--max-instructions", "--max-bytes", "--max-objects",
      "--max-frames", "--seconds",          "--repeat",    "--seed"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return 1;
  return 0;
}

static void read_options(int argc, char **argv, options *o) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i], *equals = strchr(word, '=');
    if (word[0] != '-' || word[1] == 0 || (word[1] >= '0' && word[1] <= '9')) {
      if (!o->file)
        o->file = word;
      else
        PUSH(o->inputs, o->n_inputs, o->inputs_capacity, word);
    } else if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
      fputs(usage, stdout);
      exit(0);
    } else if (!strcmp(word, "--version")) {
      printf("nvm-run %s, reads format %u\n%s\n", nvm_version(), nvm_format_version(),
             nvm_build_info());
      exit(0);
    } else if (set_flag(o, word)) {
      continue;
    } else if (word[1] == '-' && equals) { /* --name=value */
      set_value(o, keep_text(word, (size_t)(equals - word)), equals + 1);
    } else if (!takes_value(word)) {
      mistake("no option %s; nvm-run --help lists them", word);
    } else if (i + 1 == argc) {
      mistake("%s needs a value", word);
    } else {
      set_value(o, word, argv[++i]);
    }
  }
  if (!o->file) mistake("no executable given; nvm-run --help says how to call this");
}

/* --- inputs ----------------------------------------------------------------------------------- */

typedef struct call {
  target to;
  nvm_function_info info;
  arguments *values; /* by parameter */
  uint64_t random;   /* state of the generator */
} call;

static nvm_param_info param_at(const call *c, uint32_t index) {
  nvm_param_info param;
  if (nvm_program_param(c->to.program, c->to.function, index, &param)) failed(NULL);
  return param;
}

static int ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static uint64_t next_random(call *c) { /* splitmix64 */
  uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* Nearly normal: the sum of twelve uniform numbers, less six. */
static double next_normal(call *c) {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += (double)(next_random(c) >> 11) * 0x1p-53;
  return sum;
}

static void add_random(call *c, const nvm_param_info *param, const char *sizes, const char *place,
                       arguments *out) {
  nvm_type_info type;
  int64_t *shape = keep(MAX_RANK * sizeof *shape);
  uint32_t rank = 0;
  if (nvm_program_type_info(c->to.program, param->type, &type)) failed(place);
  if (type.kind != NVM_TYPE_TENSOR) mistake("%s: only tensors can be random", place);
  for (const char *at = sizes; at && *at;) {
    char *end;
    const long long size = strtoll(at, &end, 10);
    if (end == at || *at == '-' || *at == '+' || size < 0 || (*end && *end != 'x') ||
        (*end == 'x' && !end[1]) || rank == MAX_RANK)
      mistake("%s: random:%s: write sizes as random:2x3", place, sizes);
    shape[rank++] = size;
    at = *end ? end + 1 : end;
  }
  for (uint32_t a = 0; !sizes && a < type.rank; a++) {
    if (type.dims[a] < 0) mistake("%s: random needs a shape here: random:2x3", place);
    shape[rank++] = type.dims[a];
  }
  const size_t count = shape_count(type.dtype, rank, shape, place), item = dtype_size(type.dtype);
  char *data = keep(count * item);
  for (size_t i = 0; i < count; i++)
    if (is_float(type.dtype))
      (void)write_float(type.dtype, next_normal(c), data + i * item);
    else
      write_integer(type.dtype, 0, next_random(c) % (type.dtype == NVM_DTYPE_BOOL ? 2 : 10),
                    data + i * item);
  PUSH(out->items, out->count, out->capacity, nvm_arg_tensor(type.dtype, rank, shape, data));
}

/* The array of FILE.npz:NAME or FILE.npz (the one called `wanted`, or its only one). */
static nvm_arg array_in(const char *text, const char *wanted) {
  const char *colon = strstr(text, ".npz:");
  const char *path = colon ? keep_text(text, (size_t)(colon - text) + 4) : text;
  size_t count, found = 0;
  const npz_member *members = read_npz(path, &count);
  const char *name = colon ? colon + 5 : wanted;
  while (found < count && strcmp(members[found].name, name) != 0) found++;
  if (found == count && !colon && count == 1) found = 0;
  if (found == count)
    mistake("%s has no array %s; it has %zu%s%s", path, name, count, count ? ", the first is " : "",
            count ? members[0].name : "");
  return parse_npy(text, members[found].bytes, members[found].size);
}

/* What stands behind the = of an input. */
static void add_text(call *c, uint32_t index, const char *text) {
  const nvm_param_info param = param_at(c, index);
  arguments *out = &c->values[index];
  char *place = keep(strlen(param.name) + 16), *quoted;
  size_t size = strlen(text);
  nvm_type_info type;
  sprintf(place, "parameter %%%s", param.name);
  if (out->count) mistake("%s is given twice", place);
  if (nvm_program_type_info(c->to.program, param.type, &type)) failed(place);
  if ((ends_with(text, ".npz") || strstr(text, ".npz:")) && !strchr("[{\"", *text)) {
    const nvm_arg arg = array_in(text, param.name);
    PUSH(out->items, out->count, out->capacity, arg);
    return;
  }
  if (ends_with(text, ".npy") && !strchr("[{\"", *text)) {
    const nvm_arg arg = read_npy(text);
    PUSH(out->items, out->count, out->capacity, arg);
    return;
  }
  if (!strcmp(text, "random") || !strncmp(text, "random:", 7)) {
    add_random(c, &param, text[6] ? text + 7 : NULL, place, out);
    return;
  }
  if (ends_with(text, ".json") && !strchr("[{\"", *text)) {
    const char *file = text;
    text = read_file(file, &size);
    place = keep(strlen(param.name) + strlen(file) + 32);
    sprintf(place, "%s: parameter %%%s", file, param.name);
  } else if (type.kind == NVM_TYPE_ADT &&
             !strchr("[{\"", *text)) { /* a constructor without fields */
    quoted = keep(size + 3);
    size = (size_t)sprintf(quoted, "\"%s\"", text);
    text = quoted;
  }
  const json value = parse_json(text, size, place);
  add_json(&c->to, value.nodes, param.type, place, out);
}

static uint32_t param_named(const call *c, const char *name, size_t length, const char *origin) {
  char signature[400];
  if (length && *name == '%') name++, length--;
  for (uint32_t p = 0; p < c->info.n_params; p++) {
    const nvm_param_info param = param_at(c, p);
    if (strlen(param.name) == length && memcmp(param.name, name, length) == 0) return p;
  }
  nvm_program_signature(c->to.program, c->to.function, signature, sizeof signature);
  mistake("%s: no parameter %%%.*s; the function is %s", origin, length < 60 ? (int)length : 60,
          name, signature);
}

/* The length of the NAME of NAME=VALUE; 0 if there is none. */
static size_t name_length(const char *text) {
  const char *at = text + (*text == '%');
  while ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ||
         *at == '_' || *at == '.' || *at == '-')
    at++;
  return *at == '=' ? (size_t)(at - text) : 0;
}

static void add_members(call *c, const char *path) {
  size_t size;
  const char *text = read_file(path, &size);
  const json value = parse_json(text, size, path);
  const json_node *object = value.nodes, *name = object + 1;
  if (object->kind != JSON_OBJECT)
    mistake("%s: expected an object of parameters by name; or write NAME=%s", path, path);
  for (uint32_t i = 0; i < object->count; i++, name += 1 + name[1].span) {
    const uint32_t p = param_named(c, name->u.text, name->count, path);
    const nvm_param_info param = param_at(c, p);
    char *place = keep(strlen(path) + strlen(param.name) + 32);
    sprintf(place, "%s: parameter %%%s", path, param.name);
    if (c->values[p].count) mistake("%s is given twice", place);
    add_json(&c->to, name + 1, param.type, place, &c->values[p]);
  }
}

static void add_arrays(call *c, const char *path) {
  size_t count;
  const npz_member *members = read_npz(path, &count);
  for (size_t i = 0; i < count; i++) {
    arguments *out = &c->values[param_named(c, members[i].name, strlen(members[i].name), path)];
    char *place = keep(strlen(path) + strlen(members[i].name) + 2);
    sprintf(place, "%s:%s", path, members[i].name);
    if (out->count) mistake("%s is given twice", place);
    const nvm_arg arg = parse_npy(place, members[i].bytes, members[i].size);
    PUSH(out->items, out->count, out->capacity, arg);
  }
}

/* All arguments in the order of the parameters. */
static arguments read_inputs(call *c, const options *o) {
  arguments all = {0};
  c->values = keep((c->info.n_params + 1) * sizeof *c->values);
  memset(c->values, 0, (c->info.n_params + 1) * sizeof *c->values);
  for (size_t i = 0; i < o->n_inputs; i++) {
    const char *text = o->inputs[i];
    const size_t length = name_length(text);
    if (length) {
      add_text(c, param_named(c, text, length, text), text + length + 1);
    } else if (ends_with(text, ".json")) {
      add_members(c, text);
    } else if (ends_with(text, ".npz")) {
      add_arrays(c, text);
    } else {
      uint32_t p = 0;
      while (p < c->info.n_params && c->values[p].count) p++;
      if (p == c->info.n_params)
        mistake("%s: @%s has no parameter left for it", text, c->info.name);
      add_text(c, p, text);
    }
  }
  for (uint32_t p = 0; p < c->info.n_params; p++) {
    const arguments *value = &c->values[p];
    char type[300];
    if (!value->count) {
      nvm_program_type_text(c->to.program, c->to.function, param_at(c, p).type, type, sizeof type);
      mistake("@%s: missing input for %%%s: %s", c->info.name, param_at(c, p).name, type);
    }
    for (size_t i = 0; i < value->count; i++)
      PUSH(all.items, all.count, all.capacity, value->items[i]);
  }
  return all;
}

/* --- results ---------------------------------------------------------------------------------- */

static void show_result(const nvm_program *program, const nvm_result *result) {
  const nvm_out *root = nvm_result_root(result);
  const int is_tuple = root->kind == NVM_OUT_ADT && root->ctor == 0;
  for (uint32_t i = 0; i < (is_tuple ? root->n_fields : 1); i++) {
    printf("result %u: ", i);
    write_value(stdout, program, is_tuple ? nvm_out_field(root, i) : root, 16, 2000);
    putchar('\n');
  }
}

/* To FOLDER/result0.npy, ... or as result0, ... into an .npz file. */
static void write_tensors(const char *folder, const nvm_out *root) {
  const int is_tuple = root->kind == NVM_OUT_ADT && root->ctor == 0,
            one = ends_with(folder, ".npz");
  const uint32_t count = is_tuple ? root->n_fields : 1;
  char *path = keep(strlen(folder) + 40);
  npz_member *members = keep((count + 1) * sizeof *members);
  for (uint32_t i = 0; i < count; i++) {
    const nvm_out *field = is_tuple ? nvm_out_field(root, i) : root;
    if (field->kind != NVM_OUT_TENSOR)
      mistake("-o %s: result %u is no tensor; use -o FILE.json", folder, i);
    if (one) {
      const int length = sprintf(path, "result%u", i);
      members[i].name = keep_text(path, (size_t)length);
      members[i].bytes = format_npy(folder, field, &members[i].size);
    } else {
      sprintf(path, "%sresult%u.npy", folder, i);
      write_npy(path, field);
    }
  }
  if (one) write_npz(folder, members, count);
}

static void write_result(const options *o, const nvm_program *program, const nvm_result *result) {
  const nvm_out *root = nvm_result_root(result);
  if (ends_with(o->output, "/") || ends_with(o->output, ".npz")) {
    write_tensors(o->output, root);
  } else if (ends_with(o->output, ".npy")) {
    const nvm_out *only = root->kind == NVM_OUT_ADT && root->ctor == 0 && root->n_fields == 1
                              ? nvm_out_field(root, 0)
                              : root;
    if (only->kind != NVM_OUT_TENSOR)
      mistake(
          "-o %s holds one tensor, but the result is another value: use -o FILE.json, or -o DIR/ "
          "for a tuple of tensors",
          o->output);
    write_npy(o->output, only);
  } else {
    output out = create_file(o->output);
    write_value(out.file, program, root, SIZE_MAX, SIZE_MAX);
    fputc('\n', out.file);
    finish_file(&out);
  }
  if (!o->quiet) printf("wrote %s\n", o->output);
}

static void show_stats(nvm_vm *vm) {
  nvm_vm_stats s;
  if (nvm_vm_stats_get(vm, &s)) failed(NULL);
  printf("runs %llu, instructions %llu, kernel calls %llu, allocations %llu\n",
         (unsigned long long)s.runs, (unsigned long long)s.instructions,
         (unsigned long long)s.kernel_calls, (unsigned long long)s.allocations);
  printf("bytes: peak %llu, pooled %llu, copied %llu, written by kernels %llu\n",
         (unsigned long long)s.peak_bytes, (unsigned long long)s.pool_bytes,
         (unsigned long long)s.copied_bytes, (unsigned long long)s.written_bytes);
}

static void list_program(const nvm_program *program) {
  static char text[4096];
  for (uint32_t i = 0; i < nvm_program_function_count(program); i++) {
    nvm_function_info info;
    if (nvm_program_function(program, i, &info)) failed(NULL);
    if (!info.is_public) continue;
    nvm_program_signature(program, i, text, sizeof text);
    puts(text);
  }
  for (uint32_t i = 0; i < nvm_program_adt_count(program); i++) {
    uint32_t n_params, first, count, tag, n_fields;
    int32_t adt;
    const uint32_t *fields;
    printf("type %s", nvm_program_adt(program, i, &n_params, &first, &count));
    for (uint32_t k = first; k < first + count; k++) {
      printf("%s%s", k == first ? ": " : ", ",
             nvm_program_constructor(program, k, &adt, &tag, &n_fields, &fields));
      for (uint32_t f = 0; f < n_fields; f++) {
        nvm_program_type_text(program, UINT32_MAX, fields[f], text, 200);
        printf("%s%s", f ? ", " : "(", text);
      }
      if (n_fields) putchar(')');
    }
    putchar('\n');
  }
}

/* --- runs ------------------------------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void run(const options *o, nvm_program *program) {
  call c = {.to = {program, 0}, .random = o->seed};
  nvm_vm *vm;
  nvm_result *result = NULL;
  if (nvm_program_find(program, o->function, &c.to.function) ||
      nvm_program_function(program, c.to.function, &c.info))
    mistake("%s: there is no function @%s; nvm-run --list %s shows those there are", o->file,
            o->function, o->file);
  const arguments args = read_inputs(&c, o);
  if (nvm_vm_create(program, &o->vm, &vm)) failed(NULL);
  running = vm;
  signal(SIGINT, stop);
  double *times = keep(o->repeat * sizeof *times);
  for (uint64_t i = 0; i < o->repeat; i++) {
    nvm_result_free(result);
    const double start = now();
    if (nvm_vm_invoke(vm, c.to.function, args.items, args.count, &result)) failed(NULL);
    times[i] = now() - start;
  }
  running = NULL;
  if (!o->quiet) {
    show_result(program, result);
    qsort(times, o->repeat, sizeof *times, ascending);
    if (o->repeat == 1)
      printf("%.0f us\n", times[0]);
    else
      printf("least %.1f us, median %.1f us of %llu runs\n", times[0], times[o->repeat / 2],
             (unsigned long long)o->repeat);
    if (o->stats) show_stats(vm);
  }
  if (o->output) write_result(o, program, result);
  nvm_result_free(result);
  nvm_vm_destroy(vm);
}

/* The program with the weights that its file leaves out; takes over the reference. */
static nvm_program *with_weights(const options *o, nvm_program *program) {
  const char *beside = nvm_program_is_bound(program) ? "" : nvm_program_weights_file(program);
  nvm_weights *weights;
  nvm_program *bound;
  if (!o->weights && !*beside) return program;
  if (o->weights) {
    if (nvm_weights_open(o->weights, o->flags & NVM_LOAD_VERIFY_FULL, &weights)) failed(NULL);
  } else {
    const char *slash = strrchr(o->file, '/');
    const char *folder = slash ? keep_text(o->file, (size_t)(slash - o->file) + 1) : ".";
    int32_t file;
    if (nvm_open_below(folder, beside, &file)) failed(NULL);
    const nvm_status status =
        nvm_weights_read(file, beside, o->flags & NVM_LOAD_VERIFY_FULL, &weights);
    close(file);
    if (status) failed(NULL);
  }
  nvm_weights_set_limit(weights, o->vm.limits.bytes);
  if (nvm_program_bind(program, weights, o->flags & NVM_LOAD_VERIFY_FULL, &bound)) failed(NULL);
  nvm_weights_release(weights);
  nvm_program_release(program);
  return bound;
}

int main(int argc, char **argv) {
  options o = {
      .function = "main", .repeat = 1, .vm = {.size = sizeof(nvm_vm_options), .threads = 1}};
  nvm_program *program;
  read_options(argc, argv, &o);
  if (o.output && !ends_with(o.output, ".npy") && !ends_with(o.output, ".json") &&
      !ends_with(o.output, ".npz") && !ends_with(o.output, "/"))
    mistake("-o %s: the name must end in .npy, .npz, .json or /", o.output);
  if (o.output) check_output(o.output);
  if (nvm_program_open(o.file, o.flags, &program)) failed(NULL);
  if (*nvm_program_warning(program)) fprintf(stderr, "warning: %s\n", nvm_program_warning(program));
  if (o.list)
    list_program(program);
  else
    run(&o, program = with_weights(&o, program));
  nvm_program_release(program);
  free_kept();
  if (fflush(stdout) || ferror(stdout)) return EXIT_MISTAKE;
  return 0;
}
