/* gqac run MODEL: the graph as exported, past and present explicit, tensors in .npy files.
 *
 * --repeat measures the same run several times. With --rotate R, run i reads copy i mod R of every
 * past tensor, so that the KV cache is read from memory and not from the caches of the processor;
 * the copies are equal, so no bit of the outputs changes. --in-place binds each present to the
 * memory of its past, whose number of rows is the capacity of the cache. --fill makes a padded
 * attention mask, or an empty cache (row X26 of docs/capability-rows.md). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/compare.h"
#include "cli/expecting.h"
#include "cli/finite.h"

static const cli_flag flags[] = {
    {"input", "NAME=FILE", "reads one input from a .npy file; may be repeated"},
    {"fill", "NAME=DIMS[:N]",
     "one input of zeros whose first N elements are ones: mask=1,32:20; may be repeated"},
    {"inputs", "DIR", "reads the other inputs from DIR/<name, '/' as '_'>.npy"},
    {"output", "DIR", "writes all outputs to .npy files in this folder"},
    {"expect", "DIR",
     "compares outputs with the .npy files there: differences of at most 1e-7 + 1e-3 |expected| "
     "(16-bit floats: 1e-3 + 1e-2 |expected|) are allowed, integers must be equal; else exit 1; "
     "only valid rows of a present tensor are compared. gqac verify --against tolerates more near "
     "0"},
    {"repeat", "N", "runs N times and prints the times (json: times_ms)"},
    {"warmup", "N", "first runs N times without measuring (0)"},
    {"rotate", "R",
     "uses R copies of the past tensors in turn, so that they are read from memory, not from CPU "
     "caches (1)"},
    {"in-place", NULL,
     "writes present tensors over the past tensors, whose number of rows is then the capacity"},
    {"check-finite", NULL,
     "names the first node with a result that is NaN or infinite, and fails (slow)"},
    {NULL, NULL, NULL},
};

/* A past tensor among the inputs that are given. */
typedef struct past {
    int output;          /* index of its present */
    int at;              /* index in session.tensors */
    gqac_tensor *copies; /* [rotate], the first is the tensor itself */
} past;

typedef struct session {
    cli *c;
    gqac_program *program;
    gqac_context *context;
    const gqac_io *in, *out;
    int n_in, n_out;
    const char **names;   /* of the inputs given, n_in at most */
    gqac_tensor *tensors; /* owned */
    gqac_tensor *now;     /* inputs of the next run: views of the tensors or of copies */
    past *pasts;
    int n_pasts;
    gqac_tensor *results; /* views */
    int n_given;
    double *times_ms;
    long long repeat, warmup, rotate;
    bool in_place;
    int64_t batch, *valid; /* see compare_valid_rows */
    finite_finding finite;
} session;

/* ---- inputs -------------------------------------------------------------- */

static bool is_given(const session *s, int index) {
    for (int i = 0; i < s->n_given; i++)
        if (!strcmp(s->names[i], s->in[index].name))
            return true;
    return false;
}

static gqac_status check_new(session *s, int index) {
    return is_given(s, index) ? cli_usage(s->c, "input '%s' is given twice", s->in[index].name)
                              : GQAC_OK;
}

static gqac_status read_input(session *s, int index, const char *path) {
    GQAC_TRY(check_new(s, index));
    GQAC_TRY(gqac_npy_read(path, s->in[index].dtype, &s->tensors[s->n_given], &s->c->diag));
    s->names[s->n_given++] = s->in[index].name;
    const size_t length = strlen(s->in[index].name), end = strlen("input_ids");
    if (length >= end && !strcmp(s->in[index].name + length - end, "input_ids"))
        GQAC_TRY(cli_check_ids(s->c, s->in[index].name, &s->tensors[s->n_given - 1]));
    return GQAC_OK;
}

static gqac_status refuse_input(session *s, const char *name, int length) {
    enum { SHOWN = 8 };
    char names[512] = "";
    for (int i = 0; i < s->n_in && i < SHOWN; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", s->in[i].name);
    }
    cli_usage(s->c, "the model has no input '%.*s'", length, name);
    cli_rule(s->c, "its inputs: %s%s", names, s->n_in > SHOWN ? ", ..." : "");
    return cli_hint(s->c, "gqac inspect MODEL --io lists all inputs");
}

/* Splits NAME=VALUE into the index of input NAME and VALUE; `form` describes what the flag
 * expects. */
static gqac_status split_named(session *s, const char *spec, const char *form, int *index,
                               const char **value) {
    const char *equals = strrchr(spec, '=');
    if (!equals || equals == spec || !equals[1])
        return cli_usage(s->c, "%s, not '%s'", form, spec);
    *value = equals + 1;
    for (*index = 0; *index < s->n_in; ++*index)
        if (strlen(s->in[*index].name) == (size_t)(equals - spec) &&
            !strncmp(s->in[*index].name, spec, (size_t)(equals - spec)))
            return GQAC_OK;
    return refuse_input(s, spec, (int)(equals - spec));
}

/* Parses DIMS[:N], such as "1,32:20", or ":N" for a scalar. */
static bool parse_fill(const char *text, gqac_tensor *tensor, long long *ones) {
    char *end;
    while (*text && *text != ':') {
        if (tensor->rank == GQAC_MAX_RANK || *text < '0' || *text > '9')
            return false;
        tensor->dims[tensor->rank++] = strtoll(text, &end, 10);
        if (*end == ',' && end[1] >= '0' && end[1] <= '9')
            end++;
        else if (*end && *end != ':')
            return false;
        text = end;
    }
    *ones = 0;
    if (!*text)
        return true;
    if (text[1] < '0' || text[1] > '9')
        return false;
    *ones = strtoll(text + 1, &end, 10);
    return !*end;
}

/* Writes the bytes of the number 1; false: elements of that type are less than a byte. */
static bool one_of(gqac_dtype dtype, unsigned char bytes[8]) {
    const float f = 1.0f;
    const double d = 1.0;
    const uint16_t half = dtype == GQAC_F16 ? 0x3c00 : 0x3f80;
    memset(bytes, 0, 8);
    if (dtype == GQAC_F32)
        memcpy(bytes, &f, sizeof f);
    else if (dtype == GQAC_F64)
        memcpy(bytes, &d, sizeof d);
    else if (dtype == GQAC_F16 || dtype == GQAC_BF16)
        memcpy(bytes, &half, sizeof half);
    else
        bytes[0] = 1; /* little-endian */
    return dtype == GQAC_BOOL || gqac_dtype_bits(dtype) >= 8;
}

static gqac_status fill_input(session *s, const char *spec) {
    const char *form = "--fill needs NAME=DIMS or NAME=DIMS:N, for example mask=1,32:20",
               *text = NULL;
    gqac_tensor *tensor = &s->tensors[s->n_given];
    unsigned char one[8];
    long long ones = 0;
    size_t bytes = 0;
    int index = 0;
    GQAC_TRY(split_named(s, spec, form, &index, &text));
    GQAC_TRY(check_new(s, index));
    *tensor = (gqac_tensor){.dtype = s->in[index].dtype};
    if (!parse_fill(text, tensor, &ones))
        return cli_usage(s->c, "%s, not '%s'", form, spec);
    if (!one_of(tensor->dtype, one))
        return cli_usage(s->c, "--fill: input '%s' is %s", s->in[index].name,
                         gqac_dtype_name(tensor->dtype));
    if (gqac_shape_bytes(tensor->dtype, tensor->rank, tensor->dims, &bytes, &s->c->diag) != GQAC_OK)
        return cli_usage(s->c, "--fill '%s': the product of the dimensions must be at most 2^40",
                         spec);
    if (ones > gqac_tensor_count(tensor))
        return cli_usage(s->c, "--fill '%s': there are %lld elements", spec,
                         (long long)gqac_tensor_count(tensor));
    if (gqac_tensor_alloc(tensor, &s->c->diag) != GQAC_OK)
        return cli_fail(s->c, GQAC_NO_MEMORY, "out of memory for --fill '%s'", spec);
    memset(tensor->data, 0, bytes);
    const size_t size = bytes && ones ? bytes / (size_t)gqac_tensor_count(tensor) : 0;
    for (long long i = 0; i < ones; i++)
        memcpy((unsigned char *)tensor->data + (size_t)i * size, one, size);
    s->names[s->n_given++] = s->in[index].name;
    return GQAC_OK;
}

/* --input and --fill take precedence over --inputs. */
static gqac_status read_inputs(session *s) {
    const char *spec, *dir = cli_value(s->c, "inputs");
    for (int i = 0; (spec = cli_repeat(s->c, "input", i)); i++) {
        int index;
        const char *path;
        GQAC_TRY(split_named(s, spec, "--input needs NAME=FILE", &index, &path));
        GQAC_TRY(read_input(s, index, path));
    }
    for (int i = 0; (spec = cli_repeat(s->c, "fill", i)); i++)
        GQAC_TRY(fill_input(s, spec));
    for (int i = 0; dir && i < s->n_in; i++) {
        char path[4096];
        if (is_given(s, i))
            continue;
        cli_tensor_path(path, sizeof path, dir, s->in[i].name);
        GQAC_TRY(read_input(s, i, path));
    }
    return GQAC_OK;
}

/* ---- past tensors -------------------------------------------------------- */

static int find_output(const session *s, const char *name, size_t length) {
    for (int i = 0; i < s->n_out; i++)
        if (strlen(s->out[i].name) == length && !strncmp(s->out[i].name, name, length))
            return i;
    return -1;
}

/* True if an input is the past of a pair, or "past.0" of the pairs "past.0.key" and "past.0.value".
 * *output is then the index of its present, which is named likewise. */
static bool is_past(const session *s, const char *name, int *output) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(s->program, &pairs);
    const size_t length = strlen(name);
    for (int i = 0; i < n; i++) {
        const char *past = pairs[i].past, *present = pairs[i].present;
        if (strncmp(past, name, length) != 0 ||
            (past[length] && strcmp(past + length, ".key") != 0))
            continue;
        *output = find_output(s, present, strlen(present) - (past[length] ? strlen(".key") : 0));
        if (pairs[i].rows) /* a state, which the run must not write over: the next run needs it */
            *output = -1;
        return true;
    }
    return false;
}

static void find_pasts(session *s) {
    int output = -1;
    for (int i = 0; i < s->n_given; i++)
        if (is_past(s, s->names[i], &output))
            s->pasts[s->n_pasts++] = (past){.at = i, .output = output};
}

/* Bytes that programs can still get without swapping; 0: not known. */
static size_t available_memory(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes a number */
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        ;
    if (f)
        (void)fclose(f);
    const long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return kib ? (size_t)kib * 1024 : pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

static gqac_status check_memory(session *s) {
    const size_t available = available_memory();
    double bytes = 0;
    for (int k = 0; k < s->n_pasts; k++)
        bytes += (double)gqac_tensor_bytes(&s->tensors[s->pasts[k].at]);
    const double need = bytes * (double)(s->rotate - 1);
    if (!available || need <= 0.9 * (double)available)
        return GQAC_OK;
    gqac_status status =
        cli_fail(s->c, GQAC_NO_MEMORY,
                 "--rotate %lld needs %.0f MiB for copies of the past tensors, %.0f MiB are free",
                 s->rotate, need / 1048576, (double)available / 1048576);
    cli_hint(s->c, "--rotate %.0f", 1 + 0.9 * (double)available / bytes);
    return status;
}

static gqac_status make_copies(session *s) {
    const gqac_kv_pair *pairs = NULL;
    find_pasts(s);
    if ((s->rotate > 1 || s->in_place) && !s->n_pasts)
        return cli_usage(s->c, "%s: %s", s->rotate > 1 ? "--rotate" : "--in-place",
                         gqac_program_kv_pairs(s->program, &pairs)
                             ? "no past tensor is given; use --input or --fill"
                             : "the model has no past tensors");
    if (s->rotate > s->warmup + s->repeat)
        s->rotate = s->warmup + s->repeat; /* no run reads the rest */
    GQAC_TRY(check_memory(s));
    for (int k = 0; k < s->n_pasts; k++) {
        const gqac_tensor *t = &s->tensors[s->pasts[k].at];
        gqac_tensor *copies = calloc((size_t)s->rotate, sizeof *copies);
        if (!copies)
            return cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
        s->pasts[k].copies = copies;
        for (long long r = 0; r < s->rotate; r++) {
            copies[r] = *t;
            if (r > 0 && gqac_tensor_alloc(&copies[r], &s->c->diag) != GQAC_OK)
                return cli_fail(s->c, GQAC_NO_MEMORY, "out of memory for --rotate %lld", s->rotate);
            if (r > 0 && t->data)
                memcpy(copies[r].data, t->data, gqac_tensor_bytes(t));
        }
    }
    return GQAC_OK;
}

static void free_copies(session *s) {
    for (int k = 0; s->pasts && k < s->n_pasts; k++) {
        for (long long r = 1; s->pasts[k].copies && r < s->rotate; r++)
            gqac_tensor_free(&s->pasts[k].copies[r]);
        free(s->pasts[k].copies);
    }
    free(s->pasts);
}

/* ---- outputs ------------------------------------------------------------- */

/* Before the model is opened: the folder of --output can be written, or made. */
static gqac_status check_folder(cli *c, const char *dir) {
    struct stat info;
    if (!dir || (stat(dir, &info) == 0 && S_ISDIR(info.st_mode) && access(dir, W_OK | X_OK) == 0))
        return GQAC_OK;
    GQAC_TRY(cli_check_writable(c, dir));
    if (access(dir, F_OK) != 0)
        return GQAC_OK;
    cli_fail(c, GQAC_IO, "cannot write files into '%s': it is not a folder", dir);
    return cli_where(c, "%s", dir);
}

/* Before anything runs. */
static gqac_status check_outputs(session *s, const char *dir) {
    for (int i = 0; dir && i < s->n_out; i++) {
        char path[4096];
        cli_tensor_path(path, sizeof path, dir, s->out[i].name);
        GQAC_TRY(cli_check_output(s->c, "output", s->program, path));
        if (access(path, F_OK) == 0)
            GQAC_TRY(cli_check_writable(s->c, path));
    }
    return GQAC_OK;
}

static gqac_status write_outputs(session *s, const char *dir) {
    GQAC_TRY(cli_make_folder(s->c, dir, 0777));
    for (int i = 0; i < s->n_out; i++) {
        char path[4096];
        cli_tensor_path(path, sizeof path, dir, s->out[i].name);
        GQAC_TRY(gqac_npy_write(path, &s->results[i], &s->c->diag));
    }
    return GQAC_OK;
}

/* ---- the run ------------------------------------------------------------- */

static gqac_status open_session(session *s) {
    s->in_place = cli_switch(s->c, "in-place");
    GQAC_TRY(cli_number(s->c, "repeat", 1, 1000000, 1, &s->repeat));
    GQAC_TRY(cli_number(s->c, "warmup", 0, 1000000, 0, &s->warmup));
    GQAC_TRY(cli_number(s->c, "rotate", 1, 100000, 1, &s->rotate));
    GQAC_TRY(cli_open_stateless(s->c, &s->program, &s->context));
    if (cli_switch(s->c, "check-finite"))
        finite_watch(&s->finite, s->context);
    s->n_in = gqac_program_inputs(s->program, &s->in);
    s->n_out = gqac_program_outputs(s->program, &s->out);
    s->names = calloc((size_t)s->n_in + 1, sizeof *s->names);
    s->tensors = calloc((size_t)s->n_in + 1, sizeof *s->tensors);
    s->now = calloc((size_t)s->n_in + 1, sizeof *s->now);
    s->pasts = calloc((size_t)s->n_in + 1, sizeof *s->pasts);
    s->results = calloc((size_t)s->n_out + 1, sizeof *s->results);
    s->times_ms = calloc((size_t)s->repeat, sizeof *s->times_ms);
    if (!s->names || !s->tensors || !s->now || !s->pasts || !s->results || !s->times_ms)
        return cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
    return GQAC_OK;
}

/* The operands of run i, and where its present tensors go. */
static gqac_status choose_copies(session *s, long long i) {
    for (int k = 0; k < s->n_pasts; k++) {
        gqac_tensor *t = &s->now[s->pasts[k].at];
        t->data = s->pasts[k].copies[i % s->rotate].data;
        if (s->in_place && s->pasts[k].output >= 0)
            GQAC_TRY(gqac_context_bind_output(s->context, s->out[s->pasts[k].output].name, t->data,
                                              gqac_tensor_bytes(t), &s->c->diag));
    }
    return GQAC_OK;
}

/* With --in-place both have the shape of the shared buffer. */
static gqac_status check_in_place(session *s) {
    for (int k = 0; s->in_place && k < s->n_pasts; k++) {
        if (s->pasts[k].output < 0)
            continue;
        const gqac_tensor *past = &s->now[s->pasts[k].at],
                          *present = &s->results[s->pasts[k].output];
        bool same = past->rank == present->rank;
        for (int d = 0; same && d < past->rank; d++)
            same = past->dims[d] == present->dims[d];
        if (!same)
            return cli_fail(
                s->c, GQAC_INVALID_INPUT, "--in-place: past '%s' is %s, present '%s' is %s",
                s->names[s->pasts[k].at], cli_bracketed(past->rank, past->dims).s,
                s->out[s->pasts[k].output].name, cli_bracketed(present->rank, present->dims).s);
    }
    return GQAC_OK;
}

/* The error of the run time about a present that does not fit has its bytes; this adds its shape.
 */
static gqac_status explain_in_place(session *s, gqac_status status) {
    if (!s->in_place || status != GQAC_INVALID_INPUT || s->c->diag.rule[0])
        return status;
    const past *p = &s->pasts[0];
    cli_rule(s->c, "--in-place: past '%s' %s is the buffer of its present", s->names[p->at],
             cli_bracketed(s->now[p->at].rank, s->now[p->at].dims).s);
    cli_hint(s->c, "past tensors with a row for every token, cached and new");
    return status;
}

static gqac_status run_once(session *s, long long i) {
    GQAC_TRY(choose_copies(s, i));
    const double start = cli_seconds();
    const gqac_status status =
        gqac_run(s->context, s->n_given, s->names, s->now, s->n_out, NULL, s->results, &s->c->diag);
    if (status == GQAC_USAGE && !*s->c->diag.hint)
        cli_hint(s->c, "--inputs DIR, --input NAME=FILE or --fill NAME=DIMS give inputs");
    GQAC_TRY(status);
    if (i >= s->warmup)
        s->times_ms[i - s->warmup] = (cli_seconds() - start) * 1e3;
    return check_in_place(s);
}

static gqac_status run_times(session *s) {
    memcpy(s->now, s->tensors, (size_t)s->n_given * sizeof *s->now);
    for (long long i = 0; i < s->warmup + s->repeat; i++)
        GQAC_TRY(explain_in_place(s, run_once(s, i)));
    return GQAC_OK;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(session *s) {
    const size_t n = (size_t)s->repeat;
    qsort(s->times_ms, n, sizeof *s->times_ms, ascending);
    printf("%lld runs: min %.3f ms, median %.3f ms, max %.3f ms\n", s->repeat, s->times_ms[0],
           (s->times_ms[(n - 1) / 2] + s->times_ms[n / 2]) / 2, s->times_ms[n - 1]);
}

static void print_outputs(session *s, json_t *compared, bool equal) {
    json_t *outputs = json_array(), *times = json_array();
    for (int i = 0; i < s->n_out; i++) {
        json_t *shape = json_array();
        for (int d = 0; d < s->results[i].rank; d++)
            json_array_append_new(shape, json_integer(s->results[i].dims[d]));
        json_array_append_new(outputs,
                              json_pack("{s:o, s:s, s:o}", "name", cli_text_json(s->out[i].name),
                                        "dtype", gqac_dtype_name(s->out[i].dtype), "shape", shape));
    }
    for (long long i = 0; i < s->repeat; i++)
        json_array_append_new(times, json_real(s->times_ms[i]));
    json_t *root = json_pack("{s:o}", "outputs", outputs);
    if (cli_value(s->c, "repeat"))
        json_object_set(root, "times_ms", times);
    json_decref(times);
    if (cli_value(s->c, "expect")) {
        json_object_set(root, "compared", compared);
        json_object_set_new(root, "equal", json_boolean(equal));
    }
    cli_print_json(root);
}

static void print_table(session *s) {
    for (int i = 0; !cli_value(s->c, "expect") && i < s->n_out; i++) {
        printf("%-32s %s%s\n", cli_shown(s->out[i].name).s, gqac_dtype_name(s->results[i].dtype),
               cli_bracketed(s->results[i].rank, s->results[i].dims).s);
    }
    if (cli_value(s->c, "repeat"))
        print_times(s);
}

static gqac_status compare_outputs(session *s, const char *dir, json_t *rows, bool *equal) {
    GQAC_TRY(compare_valid_rows(s->c, s->context, s->n_given, s->names, s->tensors, s->n_out,
                                s->results, &s->batch, &s->valid));
    expecting x = {.c = s->c,
                   .out = s->out,
                   .n_out = s->n_out,
                   .results = s->results,
                   .batch = s->batch,
                   .valid = s->valid};
    GQAC_TRY(expecting_compare(&x, dir, rows));
    *equal = x.equal;
    return GQAC_OK;
}

static gqac_status report(session *s, json_t *rows, bool *equal) {
    const char *output = cli_value(s->c, "output"), *expect = cli_value(s->c, "expect");
    if (output)
        GQAC_TRY(write_outputs(s, output));
    if (expect)
        GQAC_TRY(compare_outputs(s, expect, rows, equal));
    if (cli_json(s->c))
        print_outputs(s, rows, *equal);
    else
        print_table(s);
    return GQAC_OK;
}

static gqac_status run_model(session *s, bool *equal) {
    GQAC_TRY(check_folder(s->c, cli_value(s->c, "output")));
    GQAC_TRY(open_session(s));
    GQAC_TRY(check_outputs(s, cli_value(s->c, "output")));
    GQAC_TRY(read_inputs(s));
    GQAC_TRY(make_copies(s));
    GQAC_TRY(run_times(s));
    GQAC_TRY(finite_check(s->c, &s->finite));
    json_t *rows = json_array();
    const gqac_status status = report(s, rows, equal);
    json_decref(rows);
    return status;
}

static int run(cli *c) {
    session s = {.c = c};
    bool equal = true;
    const gqac_status status = run_model(&s, &equal);
    for (int i = 0; s.tensors && i < s.n_in; i++)
        gqac_tensor_free(&s.tensors[i]);
    free_copies(&s);
    free((void *)s.names);
    free(s.tensors);
    free(s.now);
    free(s.results);
    free(s.valid);
    free(s.times_ms);
    gqac_context_free(s.context);
    gqac_program_free(s.program);
    return status == GQAC_OK && !equal ? 1 : cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_run;
const gqac_cli_verb gqac_cli_verb_run = {
    .name = "run",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "runs the graph on .npy files, with past and present as inputs and outputs",
    .examples =
        "gqac run model.onnx --inputs in --output out\n"
        "gqac run model.onnx --inputs in --expect out\n"
        "gqac run model.onnx --input input_ids=ids.npy --fill attention_mask=1,5:5 -o out\n",
    .flags = flags,
    .run = run};
