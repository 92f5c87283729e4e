/* The executor: nodes in order, each by the kernel that claimed it.
 *
 * A value of the main graph that has a slot lies in the arena of the context; results and values of
 * nested graphs have buffers of their own. Values that do not fit into the arena are allocated
 * separately, and the arena is larger in the next run. Outputs may also be views of constants (the
 * branches of a LongRoPE If), so that nothing large is copied. While a graph runs, the
 * floating-point mode is the default one (round to nearest, no flushing), whatever the caller's
 * mode is. */
#include "runtime/exec.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/machine.h"
#include "base/threads.h"
#include "ops/shared.h"
#include "runtime/exec_device.h"

gqac_status exec_create(const gqac_program *program, int threads, gqac_threads *shared, exec *e,
                        gqac_diag *diag) {
    memset(e, 0, sizeof *e);
    e->program = program;
    const size_t n = (size_t)program->n_values, pieces = (size_t)program->n_slots;
    const size_t outputs = (size_t)program->most_outputs;
    e->values = gqac_calloc(n + 1, sizeof *e->values);
    e->owned = gqac_calloc(n + 1, sizeof *e->owned);
    e->machine = (size_t)gqac_machine_memory();
    e->layout.capacity = program->n_slots;
    e->layout.live = gqac_calloc(pieces + 1, sizeof *e->layout.live);
    e->unwanted = gqac_calloc(outputs + 1, sizeof *e->unwanted);
    if (!e->values || !e->owned || !e->layout.live || !e->unwanted) {
        exec_destroy(e);
        return gqac_diag_oom(diag, "a context");
    }
    for (int i = 0; i < program->n_values; i++)
        if (program->values[i] && program->values[i]->constant)
            e->values[i] = *program->values[i]->constant;
    e->arena.budget = e->scratch.buffer.budget = program->budget;
    for (size_t i = 0; i <= n; i++)
        e->owned[i].budget = program->budget;
    for (size_t i = 0; i <= outputs; i++)
        e->unwanted[i].budget = program->budget;
    for (const ir_node *node = program->module->graph->first; node; node = node->next)
        e->n_nodes += !node->fused_into;
    gqac_status status =
        shared ? gqac_pool_create_on(shared, &e->pool, diag)
               : gqac_pool_create(threads ? threads : gqac_threads_default(), &e->pool, diag);
    if (status != GQAC_OK) {
        exec_destroy(e);
        return status;
    }
    gqac_pool_watch(e->pool, &e->poll);
    const target_mirror *mirror = program->target->mirror;
    status = mirror ? mirror->open(program->target_state, &e->mirror, diag) : GQAC_OK;
    if (status != GQAC_OK)
        exec_destroy(e);
    return status;
}

static void free_apart(const exec *e, const layout_piece *piece) {
    if (piece->apart)
        gqac_budget_give(e->program->budget, piece->bytes);
    gqac_free(piece->apart);
}

/* Frees the pieces in use, also those of a run that ended early. */
static void drop_pieces(exec *e) {
    for (int i = 0; i < e->layout.n; i++)
        free_apart(e, &e->layout.live[i]);
    e->layout.n = 0;
}

void exec_trim(exec *e) {
    for (int i = 0; e->owned && i < e->program->n_values; i++)
        exec_drop(&e->owned[i]);
    for (int i = 0; e->unwanted && i < e->program->most_outputs; i++)
        exec_drop(&e->unwanted[i]);
    drop_pieces(e);
    exec_drop(&e->arena);
    exec_drop(&e->scratch.buffer);
    e->layout.most = 0;
    e->scratch.wanted = 0;
    memset(e->expected, 0, sizeof e->expected);
}

size_t exec_bytes(const exec *e) {
    size_t bytes = e->arena.capacity + e->scratch.buffer.capacity;
    for (int i = 0; e->owned && i < e->program->n_values; i++)
        bytes += e->owned[i].capacity;
    for (int i = 0; e->unwanted && i < e->program->most_outputs; i++)
        bytes += e->unwanted[i].capacity;
    return bytes;
}

void exec_destroy(exec *e) {
    gqac_pool_free(e->pool);
    if (e->mirror)
        e->program->target->mirror->close(e->mirror);
    exec_trim(e);
    gqac_free(e->layout.live);
    gqac_free(e->bound);
    gqac_free(e->values);
    gqac_free(e->owned);
    gqac_free(e->unwanted);
    memset(e, 0, sizeof *e);
}

/* ---- memory -------------------------------------------------------------- */

enum { ALIGNMENT = 64 };

gqac_status exec_reserve(exec_buffer *buffer, size_t bytes, const char *what, gqac_diag *diag) {
    if (buffer->data && bytes <= buffer->capacity)
        return GQAC_OK;
    size_t want = bytes;
    if (want < buffer->capacity + buffer->capacity / 2) /* the cache grows row by row */
        want = buffer->capacity + buffer->capacity / 2;
    exec_drop(buffer);
    if (!gqac_budget_take(buffer->budget, want)) {
        want = bytes ? bytes : 1;
        if (!gqac_budget_take(buffer->budget, want))
            return gqac_budget_fail(buffer->budget, want, what, diag);
    }
    buffer->data = gqac_data_alloc(want);
    if (!buffer->data) {
        gqac_budget_give(buffer->budget, want);
        return gqac_diag_oom(diag, what);
    }
    buffer->capacity = want;
    return GQAC_OK;
}

void exec_drop(exec_buffer *buffer) {
    gqac_budget_give(buffer->budget, buffer->capacity);
    gqac_free(buffer->data);
    buffer->data = NULL;
    buffer->capacity = 0;
}

/* Fills memory with NaN: elements that a kernel does not write, or reads after their life, show in
 * results. */
static void poison(void *memory, size_t bytes) {
#ifdef NDEBUG
    (void)memory;
    (void)bytes;
#else
    memset(memory, 0xFF, bytes);
#endif
}

static gqac_status grow(exec_buffer *buffer, size_t bytes, gqac_diag *diag) {
    GQAC_TRY(exec_reserve(buffer, bytes, "an intermediate tensor", diag));
    poison(buffer->data, bytes);
    return GQAC_OK;
}

/* ---- the arena ----------------------------------------------------------- */

static void *piece_memory(const exec *e, const layout_piece *piece) {
    return piece->apart ? piece->apart : (unsigned char *)e->arena.data + piece->at;
}

/* Takes memory for a value that has a slot. */
static gqac_status place_in_arena(exec *e, const ir_value *value, size_t bytes, void **memory,
                                  gqac_diag *diag) {
    bool over;
    layout_piece *piece =
        layout_put(&e->layout, value->slot, e->program->last[value->id], bytes, &over);
    if (!piece)
        return gqac_diag_oom(diag, "an intermediate tensor");
    if (!over && piece->at + piece->bytes > e->arena.capacity) {
        const bool left = gqac_budget_take(e->program->budget, piece->bytes);
        piece->apart = left ? gqac_data_alloc(piece->bytes) : NULL;
        if (!piece->apart) {
            piece->last = NULL; /* no node: it stays until the next run */
            if (left)
                gqac_budget_give(e->program->budget, piece->bytes);
            return gqac_budget_fail(e->program->budget, piece->bytes, "an intermediate tensor",
                                    diag);
        }
    }
    *memory = piece_memory(e, piece);
    if (!over)
        poison(*memory, piece->bytes);
    return GQAC_OK;
}

static void end_pieces(exec *e, const ir_node *node) {
    layout_piece piece;
    while (layout_end(&e->layout, node, &piece)) {
        poison(piece_memory(e, &piece), piece.bytes);
        free_apart(e, &piece);
    }
}

/* Grows the arena to the size that earlier runs needed and that exec_expect announced. The latter
 * is an estimate: if it exceeds the memory of the process, it is ignored, pieces get memory of
 * their own, and the next run uses the size that this one needed. */
static gqac_status begin_run(exec *e, gqac_diag *diag) {
    drop_pieces(e);
    if (e->layout.most > e->machine)
        e->layout.most = 0;
    e->refused = 0;
    if (!e->layout.most)
        return GQAC_OK;
    const gqac_status status =
        exec_reserve(&e->arena, e->layout.most, "intermediate tensors", diag);
    return status == GQAC_CAPACITY ? GQAC_OK : status; /* the pieces themselves may fit */
}

void exec_expect(exec *e, const memory_lengths *lengths) {
    const int64_t rows = lengths->batch * lengths->chunk,
                  keys = lengths->sequences * lengths->tokens, logits = lengths->logit_rows;
    if (rows <= e->expected[0] && keys <= e->expected[1] && logits <= e->expected[2])
        return;
    memory_lengths most = *lengths;
    most.tokens += most.tokens / 2; /* they grow one by one */
    drop_pieces(e);
    (void)memory_lay_out(e->program, &most, &e->layout, NULL); /* an estimate; the run itself
                                                                  finds the true size */
    const int64_t now[] = {rows, lengths->sequences * most.tokens, logits};
    for (int i = 0; i < 3; i++)
        e->expected[i] = now[i] > e->expected[i] ? now[i] : e->expected[i];
}

/* ---- scratch ------------------------------------------------------------- */

struct exec_extra {
    _Alignas(ALIGNMENT) struct exec_extra *next;
    size_t bytes;
};

static void *take_scratch(void *host, size_t bytes) {
    exec *e = host;
    exec_scratch *s = &e->scratch;
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    void *memory = NULL;
    if (s->used == 0 && !s->extra) {
        const size_t want = bytes > s->wanted ? bytes : s->wanted;
        gqac_status status = exec_reserve(&s->buffer, want, "scratch", NULL);
        if (status == GQAC_CAPACITY && want > bytes)
            status = exec_reserve(&s->buffer, bytes, "scratch", NULL);
        if (status != GQAC_OK) {
            e->refused = bytes;
            return NULL;
        }
    }
    if (bytes <= s->buffer.capacity - s->used) {
        memory = (unsigned char *)s->buffer.data + s->used;
        s->used += bytes;
    } else {
        gqac_budget *budget = e->program->budget;
        const bool left = gqac_budget_take(budget, bytes);
        struct exec_extra *extra =
            left ? gqac_aligned_alloc(ALIGNMENT, sizeof *extra + bytes) : NULL;
        if (!extra) {
            gqac_budget_give(budget, left ? bytes : 0);
            e->refused = bytes;
            return NULL;
        }
        *extra = (struct exec_extra){.next = s->extra, .bytes = bytes};
        s->extra = extra;
        size_t all = s->buffer.capacity; /* all of it was too small for this request */
        for (; extra; extra = extra->next)
            all += extra->bytes;
        s->wanted = all > s->wanted ? all : s->wanted;
        memory = s->extra + 1;
    }
    s->taken += bytes;
    s->most = s->taken > s->most ? s->taken : s->most;
    poison(memory, bytes);
    return memory;
}

/* Releases the scratch that was taken since a node began. */
static void release_scratch(exec_scratch *s, size_t used, const struct exec_extra *extra) {
    s->taken -= s->used - used;
    s->used = used;
    while (s->extra != extra) {
        struct exec_extra *next = s->extra->next;
        s->taken -= s->extra->bytes;
        gqac_budget_give(s->buffer.budget, s->extra->bytes);
        gqac_free(s->extra);
        s->extra = next;
    }
}

/* ---- nodes --------------------------------------------------------------- */

/* True if the value shares memory with later values. */
static bool in_arena(const exec *e, const ir_value *value) {
    return value->slot >= 0 && value->graph == e->program->module->graph;
}

/* Sets the data of a tensor that has type and shape. value NULL: output `index`, which is not
 * used. */
static gqac_status place(exec *e, const ir_value *value, int index, gqac_tensor *t,
                         gqac_diag *diag) {
    size_t bytes = 0;
    GQAC_TRY(gqac_shape_bytes(t->dtype, t->rank, t->dims, &bytes, diag));
    const exec_bound *bound = e->bound && value ? exec_bind_of(e, value) : NULL;
    if (bound && bytes > bound->bytes)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "output '%s' needs %zu bytes, but the memory bound to it has %zu", value->name,
                  bytes, bound->bytes);
    if (bound) {
        t->data = bound->data;
        return GQAC_OK;
    }
    if (value && in_arena(e, value))
        return place_in_arena(e, value, bytes, &t->data, diag);
    exec_buffer *buffer = value ? &e->owned[value->id] : &e->unwanted[index];
    GQAC_TRY(grow(buffer, bytes, diag));
    t->data = buffer->data;
    return GQAC_OK;
}

/* A rank that is too high is refused by `place`. */
static gqac_tensor shaped(gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor t = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank && i < GQAC_MAX_RANK; i++)
        t.dims[i] = dims[i];
    return t;
}

static gqac_status alloc_output(op_call *call, int index, gqac_dtype dtype, int rank,
                                const int64_t *dims) {
    call->out[index] = shaped(dtype, rank, dims);
    return place(call->host, call->node->outputs[index], index, &call->out[index], call->diag);
}

static gqac_status run_nodes(exec *e, const ir_graph *graph, unsigned mark, gqac_diag *diag);

/* A result of a nested graph is a view. If it becomes an output of the node, but lies in memory
 * that later values share, it is copied to the output's own buffer, which lives long enough. */
static gqac_status keep_result(const op_call *call, int index, const ir_value *value,
                               gqac_tensor *result) {
    exec *e = call->host;
    const ir_value *output = call->node->outputs[index];
    *result = e->values[value->id];
    if (value->constant || !output || !in_arena(e, value))
        return GQAC_OK;
    const size_t bytes = gqac_tensor_bytes(result);
    exec_buffer *own = &e->owned[output->id];
    GQAC_TRY(grow(own, bytes, call->diag));
    if (bytes)
        memcpy(own->data, result->data, bytes);
    result->data = own->data;
    return GQAC_OK;
}

/* Maximum number of runs of nested graphs in one run of the whole graph. Nested loops multiply, so
 * a maximum for each loop would not suffice. */
enum { NESTED_MOST = 1 << 22 };

static gqac_status run_nested(op_call *call, const ir_graph *graph, int n_args,
                              const gqac_tensor *const *args, gqac_tensor *results) {
    exec *e = call->host;
    if (n_args != graph->n_inputs)
        GQAC_FAIL(call->diag, GQAC_INVALID_MODEL, "graph '%s' has %d inputs, got %d values",
                  graph->name ? graph->name : "", graph->n_inputs, n_args);
    if (e->nested == NESTED_MOST) {
        gqac_status status = gqac_diag_set(
            call->diag, GQAC_LIMIT, "the model runs more than %d iterations of loops", NESTED_MOST);
        gqac_diag_rule(call->diag, "one run of a model may run nested graphs at most %d times",
                       NESTED_MOST);
        gqac_diag_hint(call->diag,
                       "use fewer iterations of Loop and Scan, or a condition that becomes false");
        return status;
    }
    e->nested++;
    for (int i = 0; i < n_args; i++) { /* written by the host, often where the last ones were */
        e->values[graph->inputs[i]->id] = *args[i];
        if (e->mirror)
            e->program->target->mirror->changed(e->mirror, args[i]);
    }
    GQAC_TRY(run_nodes(e, graph, 0, call->diag));
    GQAC_TRY(exec_fetch_inputs(e, graph->ret, call->diag));
    for (int i = 0; i < graph->ret->n_inputs; i++) {
        const ir_value *value = graph->ret->inputs[i].value;
        if (results == call->out)
            GQAC_TRY(keep_result(call, i, value, &results[i]));
        else
            results[i] = e->values[value->id];
    }
    return GQAC_OK;
}

enum { FEW = 32 }; /* nodes with so few operands need no allocation */

/* Adds the node to the diag, unless the op has already done so. */
static void name_node(const ir_node *node, gqac_diag *diag) {
    char place[sizeof diag->where];
    const char *name = ir_node_label(node);
    const int n = snprintf(place, sizeof place, "node '%s' (", name);
    if (!diag || n < 0 || !strncmp(diag->where, place, strlen(place)))
        return;
    ir_node_where(node, diag);
}

/* Runs a node by the eval of its op; `moved`: with elements on the device. */
static gqac_status run_eval(exec *e, const ir_node *node, bool moved, gqac_diag *diag) {
    const gqac_tensor *few_in[FEW];
    gqac_tensor few_out[FEW];
    const bool many = node->n_inputs > FEW || node->n_outputs > FEW;
    const gqac_tensor **in = few_in;
    gqac_tensor *out = few_out;
    if (many) {
        in = gqac_calloc((size_t)node->n_inputs + 1, sizeof *in);
        out = gqac_calloc((size_t)node->n_outputs + 1, sizeof *out);
    }
    gqac_status status = in && out ? GQAC_OK : gqac_diag_oom(diag, "operands of a node");
    if (status == GQAC_OK) {
        for (int i = 0; i < node->n_inputs; i++)
            in[i] = node->inputs[i].value ? &e->values[node->inputs[i].value->id] : NULL;
        memset(out, 0, (size_t)node->n_outputs * sizeof *out);
        op_call call = {.node = node,
                        .in = in,
                        .out = out,
                        .pool = e->pool,
                        .diag = diag,
                        .host = e,
                        .alloc = alloc_output,
                        .run_graph = run_nested,
                        .scratch = take_scratch,
                        .move = moved ? exec_move : NULL};
        status = op_of(node)->eval(&call);
        if (status == GQAC_INVALID_MODEL) { /* axes and the like were data of this run */
            status = GQAC_INVALID_INPUT;
            if (diag)
                diag->status = status;
        }
        for (int i = 0; status == GQAC_OK && i < node->n_outputs; i++)
            if (node->outputs[i])
                e->values[node->outputs[i]->id] = out[i];
    }
    if (many) {
        gqac_free((void *)in);
        gqac_free(out);
    }
    return status;
}

static gqac_status give_value(target_call *call, int value, gqac_tensor *tensor) {
    exec *e = call->work.host;
    if (value < 0) {
        size_t bytes = 0;
        GQAC_TRY(
            gqac_shape_bytes(tensor->dtype, tensor->rank, tensor->dims, &bytes, call->work.diag));
        tensor->data = take_scratch(e, bytes ? bytes : ALIGNMENT);
        return tensor->data ? GQAC_OK : gqac_diag_oom(call->work.diag, "an output");
    }
    GQAC_TRY(place(e, e->program->values[value], 0, tensor, call->work.diag));
    e->values[value] = *tensor;
    return GQAC_OK;
}

static gqac_status run_bound(exec *e, const ir_node *node, const target_kernel *kernel,
                             gqac_diag *diag) {
    const op_origin origin = op_origin_of(node);
    target_call call = {.work = {.pool = e->pool,
                                 .diag = diag,
                                 .host = e,
                                 .scratch = take_scratch,
                                 .origin = &origin},
                        .values = e->values,
                        .state = e->program->target_state,
                        .mirror = e->mirror,
                        .kv = e->kv,
                        .give = give_value};
    return kernel->run(&call, node->bound);
}

static gqac_status run_node(exec *e, const ir_node *node, gqac_diag *diag) {
    const target_kernel *kernel = node->claim ? node->claim : &target_generic_kernel;
    const size_t used = e->scratch.used;
    const struct exec_extra *extra = e->scratch.extra;
    const bool moved = e->mirror && !kernel->run && exec_is_moved(e, node),
               on_device = moved || kernel->on_device;
    gqac_status status = on_device ? GQAC_OK : exec_fetch_inputs(e, node, diag);
    if (status == GQAC_OK)
        status = kernel->run ? run_bound(e, node, kernel, diag) : run_eval(e, node, moved, diag);
    release_scratch(&e->scratch, used, extra);
    if (status == GQAC_OK && !on_device)
        exec_outputs_changed(e, node);
    for (int i = 0; status == GQAC_OK && e->observe && i < node->n_outputs; i++)
        status = exec_fetch(e, node->outputs[i], diag);
    if (status == GQAC_OK && e->observe)
        e->observe(e->observe_arg, e, node);
    end_pieces(e, node);
    if (status != GQAC_OK)
        name_node(node, diag);
    return status;
}

void exec_share(exec *e, int64_t share) {
    e->share = share;
}

/* mark 0: all nodes, else only those with the mark. A node whose call was stopped may have failed
 * because regions were left out: then the status is ABORTED. */
static gqac_status run_nodes(exec *e, const ir_graph *graph, unsigned mark, gqac_diag *diag) {
    const bool whole = !mark && !graph->parent;
    const int64_t before = e->poll.done;
    int64_t ran = 0;
    for (const ir_node *n = graph->first; n; n = n->next) {
        if (n->fused_into || (mark && !(n->mark & mark)))
            continue;
        const gqac_status status = run_node(e, n, diag);
        if (status == GQAC_NO_MEMORY && e->refused && !gqac_poll_stopped(&e->poll))
            return gqac_budget_fail(e->program->budget, e->refused, "scratch", diag);
        if (status != GQAC_OK && !gqac_poll_stopped(&e->poll))
            return status;
        const double part = whole ? (double)++ran / (double)e->n_nodes : 0;
        GQAC_TRY(gqac_poll_barrier(&e->poll, before + (int64_t)(part * (double)e->share), diag));
    }
    return GQAC_OK;
}

static gqac_status run_marked(exec *e, unsigned mark, gqac_diag *diag) {
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    e->nested = 0;
    gqac_status status = gqac_poll_barrier(&e->poll, 0, diag);
    if (status == GQAC_OK)
        status = begin_run(e, diag);
    if (e->mirror)
        e->program->target->mirror->begin(e->mirror);
    if (status == GQAC_OK)
        status = run_nodes(e, e->program->module->graph, mark, diag);
    if (status == GQAC_OK && e->mirror)
        status = exec_fetch_results(e, diag);
    exec_log_copies(e);
    gqac_float_mode_give_back(&callers);
    return status;
}

gqac_status exec_run(exec *e, gqac_diag *diag) {
    return run_marked(e, 0, diag);
}

gqac_status exec_guard(exec *e, int guard, bool *taken, gqac_diag *diag) {
    const ir_value *cond = e->program->guards[guard]->inputs[0].value;
    GQAC_TRY(run_marked(e, 1u << guard, diag));
    const gqac_tensor *t = &e->values[cond->id];
    if (t->dtype != GQAC_BOOL || gqac_tensor_count(t) != 1)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the condition of an If is not a single bool");
    *taken = *(const unsigned char *)t->data != 0;
    return GQAC_OK;
}

void exec_set_input(exec *e, int index, const gqac_tensor *tensor) {
    e->values[e->program->module->graph->inputs[index]->id] = *tensor;
}

const gqac_tensor *exec_result(const exec *e, int index) {
    return &e->values[e->program->module->graph->ret->inputs[index].value->id];
}
