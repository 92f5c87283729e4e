/* Every op of the table in graphs that are nearly valid: an output omitted at each position, a
 * shorter list of results, a token where numbers are expected, other element types and ranks,
 * extreme attributes and integers, tensors without elements next to huge dimensions. Each must end
 * in a refusal with a reason or in the right answer, and within a time limit.
 *
 * All valid graphs are run; of the others every third on ref and on cpu, every twelfth on gpu. The
 * long tier, and `./dev check` under AddressSanitizer (ROWS_ALL), run all. Each op is tried in a
 * process of its own, so that a signal is a failure that names the graph. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gqac/gqac.h>

#include "../unit.h"
#include "ops/work.h"
#include "support_rows.h"
#include "targets/target.h"

enum { STRIDE = 3, DEVICE_STRIDE = 12 };
enum { SECONDS = 5 }; /* of processor time for one graph */
static const int64_t huge = (int64_t)1 << 34;
static const char *const targets[] = {"ref", "cpu"};

/* What the process of an op reports; shared with its parent. */
typedef struct report {
    int next;     /* number of the current graph; the next process continues after it */
    int good;     /* computed graphs */
    int failures; /* wrong answers, and refusals without a text */
    bool seed_taken;
    char text[ROW_TEXT], what[512];
} report;

typedef struct trial {
    report *shared;
    int at, first; /* first: graphs before it were tried by an earlier process */
    bool is_seed;
    const gqac_target *device; /* compared with cpu; NULL: only ref and cpu are run */
    row_mode mode;             /* of the device */
} trial;

/* ---- one graph ----------------------------------------------------------- */

typedef struct results {
    gqac_status status;
    int n, polls;
    gqac_tensor out[ROW_OUTPUTS];
    gqac_program *program;
    gqac_context *context;
    gqac_arena *arena;
    gqac_diag diag;
} results;

/* A loop may be infinite because the model says so; then it must be possible to abort it. */
static bool enough(void *arg) {
    int *left = arg;
    return --*left < 0;
}

static void close_results(results *r) {
    if (r->context)
        gqac_context_free(r->context);
    gqac_program_free(r->program);
    gqac_arena_free(r->arena);
}

/* The tensors for %a0, %a1, ...: constants of a graph of their own. */
static gqac_status run_program(results *r, const row_graph *g, row_mode mode) {
    char values[ROW_TEXT];
    const char *names[ROW_INPUTS];
    gqac_tensor in[ROW_INPUTS];
    ir_module *module = NULL;
    int n = 0;
    if (mode != ROW_CONSTANTS) {
        if (!row_values(g, mode, values))
            return GQAC_LIMIT;
        gqac_status status = ir_parse(r->arena, values, op_schema, &module, &r->diag);
        if (status != GQAC_OK)
            return status;
        for (n = 0; n < module->graph->n_constants && n < ROW_INPUTS; n++) {
            names[n] = module->graph->constants[n]->name;
            in[n] = *module->graph->constants[n]->constant;
        }
    }
    gqac_status status = gqac_context_create(r->program, 1, &r->context, &r->diag);
    if (status != GQAC_OK)
        return status;
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = enough, .arg = &r->polls};
    status = gqac_context_set_monitor(r->context, &monitor, NULL, &r->diag);
    if (status != GQAC_OK)
        return status;
    const gqac_io *outputs;
    r->n = gqac_program_outputs(r->program, &outputs);
    return gqac_run(r->context, n, names, in, r->n, NULL, r->out, &r->diag);
}

static results run_graph(const row_graph *g, row_mode mode, const char *target, bool stateless,
                         const char *text) {
    results r = {.polls = 1000, .arena = gqac_arena_create(0)};
    gqac_model_bytes bytes;
    gqac_options options;
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, text, strlen(text));
    options.bytes = &bytes;
    options.target = target;
    options.stateless = stateless;
    options.memory_budget = (int64_t)256 << 20;
    r.status = gqac_program_open("row.gq", &options, &r.program, &r.diag);
    if (r.status == GQAC_OK && stateless)
        r.status = run_program(&r, g, mode);
    return r;
}

static void fail(trial *t, const char *what) {
    printf("  %s:\n%s\n", what, t->shared->text);
    fflush(stdout);
    t->shared->failures++;
}

static bool same_tensor(const gqac_tensor *a, const gqac_tensor *b) {
    const size_t bytes = gqac_tensor_bytes(a);
    if (a->dtype != b->dtype || gqac_tensor_bytes(b) != bytes)
        return false;
    for (int64_t i = 0; a->dtype == GQAC_F32 && i < gqac_tensor_count(a); i++) {
        const float x = op_get_f32(a, i), y = op_get_f32(b, i);
        if (x != y && (x == x || y == y)) /* the sign of a NaN is not specified */
            return false;
    }
    return a->dtype == GQAC_F32 || bytes == 0 || !memcmp(a->data, b->data, bytes);
}

/* True if the values of `r` equal those of `all` for the same outputs. */
static bool same_values(const row_graph *g, const results *r, const results *all) {
    int at = 0;
    for (int i = 0, k = 0; i < g->n_out; i++) {
        const gqac_tensor *a = &all->out[k++];
        if (!(g->named & g->read & 1u << i))
            continue;
        if (!same_tensor(a, &r->out[at++]))
            return false;
    }
    return at == r->n;
}

/* Counts a graph. True: its turn has come, and no earlier process of the op has run it. */
static bool in_turn(trial *t, int stride) {
    const int at = t->at++;
    const bool all = t->is_seed || unit_full() || getenv("ROWS_ALL");
    return at >= t->first && (all || at % stride == 0);
}

/* Runs one graph in one way. `all`: the results of the op with all its outputs; NULL: not known. */
static void try_way(trial *t, const row_graph *g, row_mode mode, const char *target, bool stateless,
                    const results *all) {
    report *shared = t->shared;
    if (!in_turn(t, STRIDE) || !row_text(g, mode, shared->text))
        return;
    shared->next = t->at;
    snprintf(shared->what, sizeof shared->what, "%s, %s", target,
             stateless ? "stateless" : "sequences");
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = SECONDS}}, NULL);
    results r = run_graph(g, mode, target, stateless, shared->text);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {0}}, NULL);
    if (getenv("ROWS_SHOW"))
        printf("%d %s: %s %s | %s\n%s\n", t->at, shared->what, gqac_status_name(r.status),
               r.diag.where, r.diag.what, shared->text);
    if (r.status == GQAC_INTERNAL || (r.status != GQAC_OK && !r.diag.what[0]))
        fail(t, r.diag.what[0] ? r.diag.what : "a refusal without a word");
    if (r.status == GQAC_OK && stateless && all && !same_values(g, &r, all))
        fail(t, "an output that is left out changes others");
    shared->good += r.status == GQAC_OK && stateless;
    shared->seed_taken |= r.status == GQAC_OK && stateless && t->is_seed;
    close_results(&r);
}

static bool same_outputs(const results *a, const results *b) {
    bool same = a->status == GQAC_OK && b->status == GQAC_OK && a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = same_tensor(&a->out[i], &b->out[i]);
    return same;
}

/* Where gpu differs from cpu (docs/gpu.md): if scores are an output, attention has the values of
 * ref, and rounds no factors to bf16. */
static bool is_exception(const row_graph *g, row_mode mode, const results *there) {
    static char text[ROW_TEXT];
    if (strcmp(g->op->name, "attention") != 0)
        return false;
    row_graph other = *g;
    const char *bf16 = strstr(g->attrs, "bf16=1");
    if (bf16)
        other.attrs[bf16 - g->attrs + 5] = '0';
    if (!row_text(&other, mode, text))
        return false;
    results same_as = run_graph(&other, mode, g->n_out > 1 ? "ref" : "cpu", true, text);
    const bool same = same_outputs(&same_as, there);
    close_results(&same_as);
    return same;
}

static bool has_empty(const row_graph *g) {
    for (int i = 0; i < g->n_in; i++)
        if (!g->in[i].absent && row_count(&g->in[i]) == 0)
            return true;
    return false;
}

/* Target gpu refuses what cpu refuses, and computes the same values. Graphs with empty tensors may
 * be refused by only one of them. */
static void try_device(trial *t, const row_graph *g) {
    report *shared = t->shared;
    if (!in_turn(t, DEVICE_STRIDE) || !row_text(g, t->mode, shared->text))
        return;
    shared->next = t->at;
    snprintf(shared->what, sizeof shared->what, "gpu, stateless");
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = 2 * SECONDS}}, NULL);
    results here = run_graph(g, t->mode, "cpu", true, shared->text);
    results there = run_graph(g, t->mode, "gpu", true, shared->text);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {0}}, NULL);
    const bool good = here.status == GQAC_OK;
    if (there.status == GQAC_INTERNAL || (there.status != GQAC_OK && !there.diag.what[0]))
        fail(t, there.diag.what[0] ? there.diag.what : "a refusal without a word");
    else if (good != (there.status == GQAC_OK) && !has_empty(g))
        fail(t, good ? there.diag.what : "cpu refuses it, gpu does not");
    else if (good && there.status == GQAC_OK && !same_outputs(&here, &there) &&
             !is_exception(g, t->mode, &there))
        fail(t, "other values than on cpu");
    shared->good += good;
    close_results(&here);
    close_results(&there);
}

static void try_graph(trial *t, const row_graph *g, const results *all) {
    if (t->device) {
        try_device(t, g);
        return;
    }
    for (int k = 0; k < 2; k++)
        for (row_mode mode = 0; mode < ROW_MODES; mode++)
            try_way(t, g, mode, targets[k], true, all);
    try_way(t, g, ROW_INPUTS_KNOWN, "cpu", false, NULL);
}

/* ---- ways to spoil a graph ------------------------------------------------ */

/* Each output omitted, or not read; and the last ones omitted together. */
static void spoil_outputs(trial *t, const row_graph *seed) {
    char text[ROW_TEXT];
    for (unsigned set = 1; t->device && set < 1u << seed->n_out; set++) {
        row_graph g = *seed;
        g.named = set;
        try_graph(t, &g, NULL);
    }
    for (int k = 0; k < 2 && !t->device; k++) {
        if (!row_text(seed, ROW_INPUTS_KNOWN, text))
            return;
        results all = run_graph(seed, ROW_INPUTS_KNOWN, targets[k], true, text);
        const results *known = all.status == GQAC_OK ? &all : NULL;
        for (unsigned set = 1; set < 1u << seed->n_out; set++) {
            row_graph g = *seed;
            g.named = set;
            try_way(t, &g, ROW_INPUTS_KNOWN, targets[k], true, known);
            try_way(t, &g, ROW_CONSTANTS, targets[k], true, known);
            try_way(t, &g, ROW_INPUTS_KNOWN, targets[k], false, NULL);
            g.named = seed->named;
            g.read = set;
            try_way(t, &g, ROW_INPUTS_KNOWN, targets[k], true, known);
            try_way(t, &g, ROW_CONSTANTS, targets[k], true, known);
        }
        for (int n = 1; n < seed->n_out; n++) {
            row_graph g = *seed;
            g.n_out = n;
            try_way(t, &g, ROW_INPUTS_KNOWN, targets[k], true, known);
            try_way(t, &g, ROW_INPUTS_KNOWN, targets[k], false, NULL);
        }
        close_results(&all);
    }
    for (int n = seed->n_out + 1; n <= ROW_OUTPUTS; n++) {
        row_graph g = *seed;
        g.n_out = n;
        g.named = g.read = (1u << n) - 1;
        try_graph(t, &g, NULL);
    }
}

static void spoil_input(trial *t, const row_graph *seed, int i) {
    static const char *const types[] = {"token", "f32", "f16", "bf16", "f64", "i8",   "u8", "i16",
                                        "u16",   "i32", "u32", "i64",  "u64", "bool", "i4", "u4"};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        row_graph g = *seed;
        if (!strcmp(g.in[i].dtype, types[k]))
            continue;
        snprintf(g.in[i].dtype, sizeof g.in[i].dtype, "%s", types[k]);
        try_graph(t, &g, NULL);
    }
    row_graph g = *seed;
    g.in[i].absent = true;
    try_graph(t, &g, NULL);
    for (int rank = 0; rank <= GQAC_MAX_RANK; rank++) {
        g = *seed;
        g.in[i].rank = rank;
        g.in[i].data[0] = '\0';
        for (int axis = seed->in[i].rank; axis < rank; axis++)
            g.in[i].dims[axis] = 1;
        if (rank != seed->in[i].rank)
            try_graph(t, &g, NULL);
    }
    for (int axis = 0; axis < seed->in[i].rank; axis++)
        for (int64_t n = 0; n < 3; n++) {
            g = *seed;
            g.in[i].dims[axis] = n;
            g.in[i].data[0] = '\0';
            try_graph(t, &g, NULL);
        }
}

static void spoil_numbers(trial *t, const row_graph *seed, int i) {
    static const char *const extremes[] = {"-9223372036854775808",
                                           "9223372036854775807",
                                           "-2147483648",
                                           "2147483647",
                                           "-1",
                                           "0",
                                           "1000000"};
    const bool narrow = !strcmp(seed->in[i].dtype, "i32");
    const int64_t n = row_count(&seed->in[i]);
    if (n < 1 || n > 3 || (!narrow && strcmp(seed->in[i].dtype, "i64")))
        return;
    for (size_t k = narrow ? 2 : 0; k < sizeof extremes / sizeof *extremes; k++) {
        row_graph g = *seed;
        g.in[i].data[0] = '\0';
        for (int64_t e = 0; e < n; e++)
            snprintf(g.in[i].data + strlen(g.in[i].data), 64, "%s%s", e ? "," : "", extremes[k]);
        try_graph(t, &g, NULL);
    }
}

static void spoil_inputs(trial *t, const row_graph *seed) {
    for (int i = 0; i < seed->n_in; i++) {
        if (seed->in[i].absent)
            continue;
        spoil_input(t, seed, i);
        spoil_numbers(t, seed, i);
    }
    for (int n = 0; n < seed->n_in; n++) {
        row_graph g = *seed;
        g.n_in = n;
        try_graph(t, &g, NULL);
    }
}

/* The lengths in a seed, each once. */
static int lengths_of(const row_graph *g, int64_t *lengths, int most) {
    int n = 0;
    for (int i = 0; i < g->n_in; i++)
        for (int axis = 0; axis < g->in[i].rank; axis++) {
            int k = 0;
            while (k < n && lengths[k] != g->in[i].dims[axis])
                k++;
            if (k == n && n < most)
                lengths[n++] = g->in[i].dims[axis];
        }
    return n;
}

/* In all tensors, lengths a or b become 0 and lengths c huge; false if a tensor becomes too
 * large. */
static bool stretch(row_graph *g, int64_t a, int64_t b, int64_t c) {
    for (int i = 0; i < g->n_in; i++) {
        row_input *in = &g->in[i];
        for (int axis = 0; axis < in->rank; axis++) {
            const int64_t n = in->dims[axis];
            if (n != a && n != b && n != c)
                continue;
            in->dims[axis] = n == c ? huge : 0;
            in->data[0] = '\0';
        }
        if (row_count(in) < 0)
            return false;
    }
    return true;
}

/* Tensors without elements: one or two lengths are 0, another one huge. */
static void spoil_lengths(trial *t, const row_graph *seed) {
    int64_t lengths[16];
    const int n = lengths_of(seed, lengths, 16);
    for (int a = 0; a < n; a++)
        for (int b = 0; b <= a; b++)
            for (int c = 0; c <= n; c++) {
                row_graph g = *seed;
                if (c != a && c != b &&
                    stretch(&g, lengths[a], lengths[b], c < n ? lengths[c] : -1))
                    try_graph(t, &g, NULL);
            }
}

/* In one tensor: for each pair of axes, one is 0 and the other huge. */
static void spoil_axes(trial *t, const row_graph *seed) {
    for (int i = 0; i < seed->n_in; i++)
        for (int a = 0; a < seed->in[i].rank; a++)
            for (int b = 0; b < seed->in[i].rank; b++) {
                row_graph g = *seed;
                if (a == b || seed->in[i].absent)
                    continue;
                g.in[i].dims[a] = 0;
                g.in[i].dims[b] = huge;
                g.in[i].data[0] = '\0';
                try_graph(t, &g, NULL);
            }
}

static void spoil_attrs(trial *t, const row_graph *seed) {
    static const char *const ints[] = {"-9223372036854775808",
                                       "9223372036854775807",
                                       "-2147483648",
                                       "2147483647",
                                       "-2",
                                       "-1",
                                       "0",
                                       "1",
                                       "2",
                                       "1099511627776"};
    static const char *const floats[] = {"nan", "inf", "-inf", "0.0", "-1.0", "1e-40"};
    static const char *const lists[] = {"[]",
                                        "[0]",
                                        "[-1]",
                                        "[-2147483648]",
                                        "[9223372036854775807]",
                                        "[0,0]",
                                        "[-9223372036854775808,9223372036854775807]",
                                        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"};
    static const char *const texts[] = {"\"\"", "\"nonsense\""};
    static const char *const types[] = {"f32", "i4", "u64", "bool", "bf16", "token"};
    for (const ir_attr_spec *a = seed->op->attrs; a && a->name; a++) {
        const char *const *values = a->kind == IR_ATTR_INT      ? ints
                                    : a->kind == IR_ATTR_FLOAT  ? floats
                                    : a->kind == IR_ATTR_INTS   ? lists
                                    : a->kind == IR_ATTR_STRING ? texts
                                    : a->kind == IR_ATTR_DTYPE  ? types
                                                                : NULL;
        const size_t n = values == ints     ? sizeof ints / sizeof *ints
                         : values == floats ? sizeof floats / sizeof *floats
                         : values == lists  ? sizeof lists / sizeof *lists
                         : values == texts  ? sizeof texts / sizeof *texts
                         : values           ? sizeof types / sizeof *types
                                            : 0;
        for (size_t k = 0; k < n; k++) {
            row_graph g = *seed;
            row_set_attr(&g, a->name, values[k]);
            try_graph(t, &g, NULL);
        }
    }
}

static void try_seed(trial *t, const row_graph *seed) {
    t->is_seed = true;
    try_graph(t, seed, NULL);
    t->is_seed = false;
    spoil_outputs(t, seed);
    spoil_inputs(t, seed);
    spoil_lengths(t, seed);
    spoil_axes(t, seed);
    spoil_attrs(t, seed);
}

/* ---- the table ------------------------------------------------------------ */

/* For an op without a row: as many tensors as it needs, in some simple shapes. */
static void try_simple(trial *t, const ir_schema *op) {
    static const char *const shapes[] = {"f32[2,3]", "i64[2,3]", "f32[2,3,4,8]", "i32[2]", "u8[3]"};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        char inputs[16 * ROW_INPUTS] = "";
        int least, most;
        ir_schema_arity(op->inputs, &least, &most);
        for (int i = 0; i < least && i < ROW_INPUTS; i++)
            strcat(strcat(inputs, i ? " | " : ""), shapes[k]);
        const row_graph seed = row_open(op, &(row_seed){.attrs = "", .inputs = inputs});
        try_seed(t, &seed);
    }
}

/* Chooses the operands that must be constant for a kernel of the device. False: the device has no
 * kernel. */
static bool choose_mode(trial *t, const row_graph *seed) {
    static const row_mode modes[] = {ROW_INPUTS_KNOWN, ROW_WEIGHTS, ROW_TABLE};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        t->mode = modes[i];
        if (row_has_kernel(seed, t->mode, t->device))
            return true;
    }
    return false;
}

static void try_op(report *shared, int first, const ir_schema *op, const gqac_target *device) {
    trial t = {.shared = shared, .first = first, .device = device};
    const row_seed *seed = row_seed_of(op, 0);
    if (!seed && !device)
        try_simple(&t, op);
    for (int n = 0; seed; seed = row_seed_of(op, ++n)) {
        const row_graph g = row_open(op, seed);
        shared->seed_taken = false;
        if (device && !choose_mode(&t, &g))
            continue;
        try_seed(&t, &g);
        if (!shared->seed_taken && first == 0 && !device && !(op->flags & IR_OP_EFFECT))
            printf("  %s.%s: seed %d is refused\n", op->domain, op->name, n);
    }
    shared->next = -1;
}

/* Runs an op in processes until one reaches the end. */
static void run_op(report *shared, const ir_schema *op, const gqac_target *device) {
    shared->good = shared->failures = 0;
    for (int first = 0, crashes = 0; first >= 0 && crashes < 40; crashes++) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            try_op(shared, first, op, device);
            fflush(stdout);
            _exit(0);
        }
        CU_ASSERT_FATAL(child > 0);
        CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
        first = shared->next;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
        shared->failures++;
        printf("  %s.%s (%s, graph %d): %s\n%s\n", op->domain, op->name, shared->what, first,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended", shared->text);
    }
    CU_ASSERT_EQUAL(shared->failures, 0);
}

static report *open_report(void) {
    report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(shared != MAP_FAILED);
    return shared;
}

/* Every second op, so that two processes can divide the table. */
static void rows_from(int first) {
    report *shared = open_report();
    const char *only = getenv("ROWS_ONLY");
    int computed = 0;
    for (int i = first; i < gqac_op_count; i += 2) {
        const ir_schema *op = &gqac_op_table[i]->schema;
        if (only && strcmp(only, op->name))
            continue;
        run_op(shared, op, NULL);
        computed += shared->good > 0;
        if (!shared->good)
            printf("  %s.%s is never computed\n", op->domain, op->name);
    }
    printf("  %d of %d ops computed something\n", computed, (gqac_op_count + 1 - first) / 2);
    munmap(shared, sizeof *shared);
}

static void even_rows(void) {
    rows_from(0);
}

static void odd_rows(void) {
    rows_from(1);
}

/* Ops for which target gpu has kernels. */
static void device_rows(void) {
    const gqac_target *gpu = NULL;
    gqac_diag diag;
    const char *only = getenv("ROWS_ONLY");
    CU_ASSERT_EQUAL_FATAL(gqac_target_find("gpu", &gpu, &diag), GQAC_OK);
    if (!row_has_device()) {
        printf("  there is no device\n");
        return;
    }
    report *shared = open_report();
    int computed = 0;
    for (int i = 0; i < gqac_op_count; i++) {
        const ir_schema *op = &gqac_op_table[i]->schema;
        if (only && strcmp(only, op->name))
            continue;
        run_op(shared, op, gpu);
        computed += shared->good;
    }
    printf("  %d graphs computed\n", computed);
    CU_ASSERT(only || computed > 100);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"rows of even ops", even_rows},
                                      {"rows of odd ops", odd_rows},
                                      {"rows of gpu", device_rows}};
    return unit_run("hostile: op rows", cases, sizeof cases / sizeof *cases, argc, argv);
}
