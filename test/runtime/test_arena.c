/* The arena of a context: no two live values share memory, memory that kernels overwrite has no
 * later reader, and its size is known before a run. Lifetimes are computed here independently, only
 * from the uses of values, and contents are compared after every node. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/context.h"

/* ---- the layout alone ---------------------------------------------------- */

enum { PIECES = 24, ROUNDS = 4000 };

static void test_layout(void) {
    layout_piece live[PIECES + 1];
    layout l = {.live = live, .capacity = PIECES};
    ir_node nodes[PIECES];
    size_t at[PIECES] = {0}, bytes[PIECES] = {0}, most = 0;
    uint64_t random = 1;
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int k = (int)(random >> 40) % PIECES;
        layout_piece ended;
        bool over;
        if (bytes[k]) {
            CU_ASSERT_FATAL(layout_end(&l, &nodes[k], &ended) && ended.at == at[k]);
            CU_ASSERT_FATAL(!layout_end(&l, &nodes[k], &ended));
            bytes[k] = 0;
            continue;
        }
        bytes[k] = 1 + (random >> 20) % 5000;
        const layout_piece *piece = layout_put(&l, k, &nodes[k], bytes[k], &over);
        CU_ASSERT_FATAL(piece && !over && piece->bytes >= bytes[k] && piece->at % 64 == 0);
        at[k] = piece->at;
        bytes[k] = piece->bytes;
        most = at[k] + bytes[k] > most ? at[k] + bytes[k] : most;
        for (int j = 0; j < PIECES; j++)
            CU_ASSERT_FATAL(j == k || !bytes[j] || at[j] + bytes[j] <= at[k] ||
                            at[k] + bytes[k] <= at[j]);
        CU_ASSERT_EQUAL_FATAL(l.most, most);
    }
}

static void test_over(void) {
    layout_piece live[4], ended;
    layout l = {.live = live, .capacity = 3};
    ir_node first = {.n_inputs = 0}, second = {.n_inputs = 0};
    bool over;
    CU_ASSERT_FATAL(layout_put(&l, 7, &first, 100, &over) && !over);
    CU_ASSERT_FATAL(layout_put(&l, 7, &second, 100, &over) && over);
    CU_ASSERT(!layout_end(&l, &first, &ended)); /* its memory continues as b */
    CU_ASSERT(layout_end(&l, &second, &ended) && l.n == 0 && l.most == 128);
    /* a value that is larger than planned gets its own memory */
    CU_ASSERT_FATAL(layout_put(&l, 7, &first, 100, &over) && !over);
    const layout_piece *piece = layout_put(&l, 7, &second, 200, &over);
    CU_ASSERT_FATAL(piece && !over && piece->at == 128);
    CU_ASSERT(layout_end(&l, &first, &ended) && ended.at == 0);
    CU_ASSERT(layout_end(&l, &second, &ended) && ended.at == 128);
}

/* ---- a model ------------------------------------------------------------- */

enum { MOST_NODES = 1 << 12, PROMPT = 70 };

/* The contents of a value after its node has run, as long as it has later readers. */
typedef struct kept {
    const ir_value *value;
    int last;
    uint64_t digest;
} kept;

typedef struct watch {
    const ir_node *order[MOST_NODES];
    int n, at;
    kept kept[MOST_NODES];
    int n_kept, compared, changed;
} watch;

static const ir_node *root_of(const ir_node *node, const ir_graph *graph) {
    while (node->graph != graph)
        node = node->graph->parent;
    return node->fused_into ? node->fused_into : node;
}

static int last_of(const watch *w, const ir_value *value, const ir_graph *graph) {
    int last = -1;
    for (const ir_use *use = value->uses; use; use = use->next) {
        if (use->node == graph->ret)
            return w->n;
        const ir_node *node = root_of(use->node, graph);
        for (int i = last + 1; i < w->n; i++)
            if (w->order[i] == node)
                last = i;
    }
    return last;
}

static uint64_t digest_of(const gqac_tensor *t) {
    const unsigned char *bytes = t->data;
    uint64_t digest = 14695981039346656037u;
    for (size_t i = 0; i < gqac_tensor_bytes(t); i++)
        digest = (digest ^ bytes[i]) * 1099511628211u;
    return digest;
}

static void after_node(void *arg, const exec *e, const ir_node *node) {
    watch *w = arg;
    const ir_graph *graph = e->program->module->graph;
    if (node->graph != graph)
        return;
    int at = 0;
    while (w->order[at] != node)
        at++;
    if (at <= w->at) /* another run: of the condition of a guard, then of the graph */
        w->n_kept = 0;
    w->at = at;
    for (int i = 0; i < w->n_kept; i++) {
        if (w->kept[i].last <= w->at)
            continue;
        w->compared++;
        w->changed += digest_of(&e->values[w->kept[i].value->id]) != w->kept[i].digest;
    }
    for (const ir_node *n = graph->first; n; n = n->next)
        for (int i = 0; i < n->n_outputs && root_of(n, graph) == node; i++) {
            const ir_value *v = n->outputs[i];
            const gqac_tensor *t = v ? &e->values[v->id] : NULL;
            if (!v || !t->data || v->type.dtype == GQAC_TOKEN ||
                (n->fused_into && !ir_value_escapes(v)))
                continue;
            CU_ASSERT_FATAL(w->n_kept < MOST_NODES);
            w->kept[w->n_kept++] = (kept){v, last_of(w, v, graph), digest_of(t)};
        }
}

typedef struct run {
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence;
    watch *watch;
} run;

static run open_run(const char *model, const char *target, int threads) {
    gqac_options options;
    gqac_diag diag;
    run r = {.watch = calloc(1, sizeof *r.watch)};
    gqac_options_init(&options);
    options.target = target;
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.watch);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &r.program, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, threads, &r.context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_create(r.program,
                             &(gqac_sequence_options){.size = sizeof(gqac_sequence_options),
                                                      .final_length = PROMPT + 9},
                             &r.sequence, &diag),
        GQAC_OK);
    for (const ir_node *n = r.program->module->graph->first; n; n = n->next)
        if (!n->fused_into) {
            CU_ASSERT_FATAL(r.watch->n < MOST_NODES);
            r.watch->order[r.watch->n++] = n;
        }
    r.context->exec.observe = after_node;
    r.context->exec.observe_arg = r.watch;
    return r;
}

static void close_run(run *r) {
    gqac_sequence_free(r->sequence);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
    free(r->watch);
}

static void step(run *r, int64_t count, int64_t logits) {
    int64_t ids[PROMPT];
    gqac_diag diag;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 37 + 11) % 250;
    r->watch->at = -1;
    r->watch->n_kept = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r->context, r->sequence, ids, count, logits, &diag),
                          GQAC_OK);
}

/* The number of values in the memory of another one. */
static int written_over(const gqac_program *program) {
    int n = 0;
    for (const ir_node *node = program->module->graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++)
            n += node->outputs[i] && node->outputs[i]->slot >= 0;
    return n - program->n_slots;
}

static void check(const char *model, const char *target, int threads, int least_over) {
    run r = open_run(model, target, threads);
    const exec *e = &r.context->exec;
    step(&r, PROMPT, GQAC_LOGITS_ALL);
    const size_t expected = e->arena.capacity;
    CU_ASSERT(expected >= e->layout.most && expected > 0); /* the size was correct before the run */
    step(&r, 1, GQAC_LOGITS_ALL);
    step(&r, 3, GQAC_LOGITS_ALL);
    CU_ASSERT_EQUAL(e->arena.capacity, expected);
    printf("  %s %s: %d written over, %d compared, %d changed, %zu bytes of arena\n", target, model,
           written_over(r.program), r.watch->compared, r.watch->changed, expected);
    CU_ASSERT(written_over(r.program) >= least_over);
    CU_ASSERT(r.watch->compared > 50);
    CU_ASSERT_EQUAL(r.watch->changed, 0);
    close_run(&r);
}

static void test_models(void) {
    check("test/models/llama/model.onnx", "cpu", 1, 6);
    check("test/models/gemma2/model.onnx", "cpu", 3, 4);
    check("test/models/llama-int4-acc4/model.onnx", "cpu", 2, 6);
    check("test/models/phi3/model.onnx", "cpu", 1, 4);
    check("test/models/llama/model.onnx", "ref", 1, 0);
}

/* Compares the activations reported by `inspect --memory` with the memory that the context
 * allocated. */
static void check_figure(const char *model) {
    run r = open_run(model, "cpu", 1);
    const exec *e = &r.context->exec;
    gqac_memory m = {.size = sizeof m};
    gqac_diag diag;
    size_t results = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_program_memory(r.program, PROMPT, PROMPT, &m, &diag), GQAC_OK);
    step(&r, PROMPT, 1);
    for (int i = 0; i < r.program->n_values; i++)
        results += e->owned[i].capacity;
    printf("  %s: %lld foretold; arena %zu, results %zu\n", model, (long long)m.prefill,
           e->arena.capacity, results);
    CU_ASSERT_EQUAL((size_t)m.prefill, e->arena.capacity + results);
    close_run(&r);
}

static void test_figures(void) {
    check_figure("test/models/llama/model.onnx");
    check_figure("test/models/gemma2/model.onnx");
}

/* Allocates separate memory for every value: kernels that overwrote operands must compute the same
 * bits. */
static void take_apart(gqac_program *program) {
    int n = 0;
    for (ir_node *node = program->module->graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i] && node->outputs[i]->slot >= 0)
                node->outputs[i]->slot = n++;
    program->n_slots = n;
}

static float *logits_of(const char *model, bool apart, size_t guess, int64_t *count) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    gqac_diag diag;
    int64_t ids[PROMPT], n = PROMPT, width;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 29 + 5) % 250;
    gqac_options_init(&options);
    options.target = "cpu";
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &program, &diag), GQAC_OK);
    if (apart)
        take_apart(program);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_create(
            program,
            &(gqac_sequence_options){.size = sizeof(gqac_sequence_options), .final_length = PROMPT},
            &sequence, &diag),
        GQAC_OK);
    if (guess) { /* as if this size had been announced; no step announces a larger one */
        context->exec.layout.most = guess;
        for (int i = 0; i < 3; i++)
            context->exec.expected[i] = INT64_MAX;
    }
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, sequence, ids, n, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
    CU_ASSERT(!guess || context->exec.layout.most < guess);
    const float *logits = gqac_context_logits(context, 0, count, &width);
    *count *= width;
    float *copy = malloc((size_t)*count * sizeof *copy);
    CU_ASSERT_FATAL(copy && logits);
    memcpy(copy, logits, (size_t)*count * sizeof *copy);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
    return copy;
}

static void test_same_bits(void) {
    static const char *const models[] = {
        "test/models/llama/model.onnx",   "test/models/gemma2/model.onnx",
        "test/models/qwen3/model.onnx",   "test/models/llama-fp16/model.onnx",
        "test/models/gpt-oss/model.onnx", "test/models/phi3/model.onnx"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        int64_t n, m;
        float *over = logits_of(models[i], false, 0, &n),
              *apart = logits_of(models[i], true, 0, &m);
        CU_ASSERT(n == m && memcmp(over, apart, (size_t)n * sizeof *over) == 0);
        free(over);
        free(apart);
    }
}

/* A size larger than the memory of the machine is announced for a step that needs little. */
static void test_wrong_guess(void) {
    static const char model[] = "test/models/llama/model.onnx";
    int64_t n, m;
    float *as_foretold = logits_of(model, false, 0, &n);
    float *apart = logits_of(model, false, (size_t)1 << 60, &m);
    CU_ASSERT(n == m && memcmp(as_foretold, apart, (size_t)n * sizeof *apart) == 0);
    free(as_foretold);
    free(apart);
}

/* Negative controls: a lifetime that ends too early, and an operand that is overwritten too
 * early. */
static void test_controls(void) {
    for (int kind = 0; kind < 2; kind++) {
        run r = open_run("test/models/llama/model.onnx", "cpu", 1);
        for (ir_node *n = r.program->module->graph->first; n; n = n->next) {
            ir_value *y = n->outputs[0], *x = ir_node_input(n, 0);
            if (!y || y->slot < 0)
                continue;
            if (kind == 0)
                r.program->last[y->id] = ir_node_root(n);
            else if (x && x->slot >= 0 && x->slot != y->slot &&
                     r.program->last[x->id] != ir_node_root(n))
                y->slot = x->slot;
        }
        step(&r, PROMPT, GQAC_LOGITS_ALL);
        printf("  control %d: %d of %d changed\n", kind, r.watch->changed, r.watch->compared);
        CU_ASSERT(r.watch->changed > 0);
        close_run(&r);
    }
}

/* ---- operands that a kernel also reads in another way -------------------- */

enum { WIDE = 64, MOST_TEXT = 1 << 17 };

/* s + s w: both the chain that computes the sum and the product fused into it read s. Then t + s w,
 * where only the chain reads t. */
static void write_text(char *text, bool same) {
    int n = snprintf(text, MOST_TEXT,
                     "graph @g(%%x: f32[B,%d], %%y: f32[B,%d]) {\n  const %%w: f32[%d,%d] = [",
                     WIDE, WIDE, WIDE, WIDE);
    for (int i = 0; i < WIDE * WIDE; i++)
        n += snprintf(text + n, (size_t)(MOST_TEXT - n), "%s%d.0", i ? ", " : "", i * 7 % 5 - 2);
    snprintf(text + n, (size_t)(MOST_TEXT - n),
             "]\n  %%s = Abs %%x : f32[B,%d]\n  %%t = Abs %%y : f32[B,%d]\n"
             "  %%p = MatMul %%s, %%w : f32[B,%d]\n  %%a = Add %%p, %%%s : f32[B,%d]\n"
             "  %%z = Abs %%a : f32[B,%d]\n  return %%z\n}\n",
             WIDE, WIDE, WIDE, same ? "s" : "t", WIDE, WIDE);
}

static void check_chain(const char *text, bool same) {
    enum { ROWS = 150 };
    static float x[ROWS * WIDE], y[ROWS * WIDE];
    char path[] = "/tmp/gqac-arena-XXXXXX.gq";
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_diag diag;
    gqac_tensor z;
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    for (int i = 0; i < ROWS * WIDE; i++) {
        x[i] = (float)(i % 11);
        y[i] = (float)(i % 13);
    }
    gqac_options_init(&options);
    options.stateless = true;
    options.target = "cpu";
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    unlink(path);
    CU_ASSERT_EQUAL(written_over(program), same ? 0 : 1);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 3, &context, &diag), GQAC_OK);
    const gqac_tensor in[] = {
        {.dtype = GQAC_F32, .rank = 2, .dims = {ROWS, WIDE}, .data = x},
        {.dtype = GQAC_F32, .rank = 2, .dims = {ROWS, WIDE}, .data = y},
    };
    CU_ASSERT_EQUAL_FATAL(gqac_run(context, 2, (const char *[]){"x", "y"}, in, 1, NULL, &z, &diag),
                          GQAC_OK);
    for (int i = 0; i < ROWS * WIDE; i++) {
        float sum = same ? x[i] : y[i]; /* small integers, so exact */
        for (int k = 0; k < WIDE; k++)
            sum += x[i / WIDE * WIDE + k] * (float)((k * WIDE + i % WIDE) * 7 % 5 - 2);
        CU_ASSERT_FATAL(((float *)z.data)[i] == (sum < 0 ? -sum : sum));
    }
    gqac_context_free(context);
    gqac_program_free(program);
}

static void test_chains(void) {
    char *text = malloc(MOST_TEXT);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (int same = 0; same < 2; same++) {
        write_text(text, same);
        check_chain(text, same);
    }
    free(text);
}

static const unit_case cases[] = {
    {"pieces that live at one time do not overlap", test_layout},
    {"a piece goes from one value to the next", test_over},
    {"values keep their contents as long as they are read", test_models},
    {"the figure of inspect is what a context takes", test_figures},
    {"writing over operands changes no bit", test_same_bits},
    {"a guess beyond all memory is none", test_wrong_guess},
    {"a wrong life is seen", test_controls},
    {"what a product reads is not written over", test_chains},
};

int main(int argc, char **argv) {
    return unit_run("arena", cases, sizeof cases / sizeof *cases, argc, argv);
}
