/* What `inspect` reports about a model. */
#include <string.h>

#include "api/load.h"
#include "base/alloc.h"
#include "base/float_mode.h"
#include "numerics/contract.h"
#include "runtime/baked.h"

typedef struct info {
    gqac_info public; /* first: the handle points here */
    loaded model;
} info;

/* ---- op counts of text and artefacts (an ONNX report has its own) -------- */

typedef struct tally {
    gqac_arena *arena;
    int n, capacity;
    gqac_op_use *list;
} tally;

static gqac_status count_node(void *arg, ir_node *node) {
    tally *t = arg;
    const bool own = !strcmp(node->op->domain, "gqac") || !*node->op->domain;
    const char *name = own ? node->op->name
                           : gqac_arena_printf(t->arena, "%s.%s", node->op->domain, node->op->name);
    if (!name)
        return GQAC_NO_MEMORY;
    int at = 0;
    while (at < t->n && strcmp(t->list[at].op, name) < 0)
        at++;
    if (at < t->n && !strcmp(t->list[at].op, name)) {
        t->list[at].count++;
        return GQAC_OK;
    }
    if (t->n == t->capacity) {
        const int capacity = t->capacity ? 2 * t->capacity : 32;
        gqac_op_use *list = GQAC_ARENA_ARRAY(t->arena, gqac_op_use, (size_t)capacity);
        if (!list)
            return GQAC_NO_MEMORY;
        if (t->n)
            memcpy(list, t->list, (size_t)t->n * sizeof *list);
        t->list = list;
        t->capacity = capacity;
    }
    memmove(t->list + at + 1, t->list + at, (size_t)(t->n - at) * sizeof *t->list);
    t->list[at] = (gqac_op_use){name, 1};
    t->n++;
    return GQAC_OK;
}

static gqac_status fill_ops(info *x, gqac_diag *diag) {
    loaded *m = &x->model;
    if (m->report.n_ops) {
        gqac_op_use *ops = GQAC_ARENA_ARRAY(m->arena, gqac_op_use, (size_t)m->report.n_ops);
        if (!ops)
            return gqac_diag_oom(diag, "a list of ops");
        for (int i = 0; i < m->report.n_ops; i++)
            ops[i] = (gqac_op_use){m->report.ops[i], m->report.op_counts[i]};
        x->public.ops = ops;
        x->public.n_ops = m->report.n_ops;
        return GQAC_OK;
    }
    if (!m->module)
        return GQAC_OK;
    tally t = {.arena = m->arena};
    if (ir_graph_walk(m->module->graph, count_node, &t) != GQAC_OK)
        return gqac_diag_oom(diag, "a list of ops");
    x->public.ops = t.list;
    x->public.n_ops = t.n;
    return GQAC_OK;
}

static gqac_status fill_unsupported(info *x, gqac_diag *diag) {
    const onnx_report *r = &x->model.report;
    gqac_unsupported *list =
        GQAC_ARENA_ARRAY(x->model.arena, gqac_unsupported, (size_t)r->n_unsupported + 1);
    if (!list)
        return gqac_diag_oom(diag, "a list of ops");
    for (int i = 0; i < r->n_unsupported; i++)
        list[i] = (gqac_unsupported){sizeof *list, r->unsupported[i].op, r->unsupported[i].reason,
                                     r->unsupported[i].count, r->unsupported[i].first};
    x->public.unsupported = list;
    x->public.n_unsupported = r->n_unsupported;
    return GQAC_OK;
}

static gqac_status fill_declared(info *x, const onnx_io *from, int n, const gqac_io **list,
                                 int *n_list, gqac_diag *diag) {
    gqac_io *all = GQAC_ARENA_ARRAY(x->model.arena, gqac_io, (size_t)n + 1);
    if (!all)
        return gqac_diag_oom(diag, "a list of inputs");
    for (int i = 0; i < n; i++)
        all[i] = (gqac_io){.size = sizeof *all,
                           .name = from[i].name,
                           .dtype = from[i].dtype,
                           .rank = from[i].rank,
                           .shape = from[i].shape};
    *list = all;
    *n_list = n;
    return GQAC_OK;
}

/* For a model that cannot be imported: reports what its file says. */
static gqac_status fill_partial(info *x, gqac_diag *diag) {
    const onnx_report *r = &x->model.report;
    gqac_info *to = &x->public;
    to->parameters = -1;
    GQAC_TRY(fill_declared(x, r->inputs, r->n_inputs, &to->inputs, &to->n_inputs, diag));
    GQAC_TRY(fill_declared(x, r->outputs, r->n_outputs, &to->outputs, &to->n_outputs, diag));
    return fill_unsupported(x, diag);
}

/* ---- the graph ----------------------------------------------------------- */

static gqac_status fill_io(info *x, gqac_diag *diag) {
    const ir_graph *g = x->model.module->graph;
    gqac_arena *arena = x->model.arena;
    gqac_io *in = GQAC_ARENA_ARRAY(arena, gqac_io, (size_t)g->n_inputs + 1);
    gqac_io *out = GQAC_ARENA_ARRAY(arena, gqac_io, (size_t)g->ret->n_inputs + 1);
    bool ok = in && out;
    for (int i = 0; ok && i < g->n_inputs; i++)
        ok = program_describe(arena, g->inputs[i], g->inputs[i]->name, &in[i]);
    for (int i = 0; ok && i < g->ret->n_inputs; i++) {
        const ir_value *v = g->ret->inputs[i].value;
        const char *name = g->result_names ? g->result_names[i] : NULL;
        ok = program_describe(arena, v, name ? name : v->name, &out[i]);
    }
    if (!ok)
        return gqac_diag_oom(diag, "a list of inputs");
    x->public.inputs = in;
    x->public.outputs = out;
    x->public.n_inputs = g->n_inputs;
    x->public.n_outputs = g->ret->n_inputs;
    x->public.parameters = load_parameters(&x->model);
    return GQAC_OK;
}

static gqac_status fill_raised(info *x, const pass_note *notes, gqac_diag *diag) {
    int n = 0;
    for (const pass_note *note = notes; note; note = note->next)
        n++;
    gqac_raised *list = GQAC_ARENA_ARRAY(x->model.arena, gqac_raised, (size_t)n + 1);
    if (!list)
        return gqac_diag_oom(diag, "a list of nodes");
    x->public.raised = list;
    x->public.n_raised = n;
    for (; notes; notes = notes->next)
        *list++ = (gqac_raised){sizeof *list, notes->what, notes->node,
                                notes->stop,  notes->op,   notes->why};
    return GQAC_OK;
}

static gqac_status fill_graph(info *x, const gqac_options *options, gqac_diag *diag) {
    pass_context context;
    gqac_options o;
    GQAC_TRY(load_disabled(&x->model, options, &o, diag));
    /* An artefact is inspected with the options that it was made for. */
    if (x->model.meta.target) {
        o.target = x->model.meta.target;
        o.math = x->model.meta.math;
        o.seqlens_k = x->model.meta.seqlens_k;
        o.legacy_window = !strcmp(x->model.meta.legacy_window, "1");
        o.per_row_quant = !strcmp(x->model.meta.per_row_quant, "1");
    }
    GQAC_TRY(load_context(&x->model, &o, &context, diag));
    const pass_request tidy = {.stop_after = pass_tidy.name};
    GQAC_TRY(gqac_pipeline_run(&context, &tidy));
    GQAC_TRY(load_check(&x->model, o.limits, diag));
    GQAC_TRY(fill_io(x, diag));
    context.wants_notes = true;
    const pass_request look = {.stop_after = load_last_inspect_pass(&o, false),
                               .disable = o.disable};
    GQAC_TRY(gqac_pipeline_run(&context, &look));
    GQAC_TRY(fill_raised(x, context.notes, diag));
    kv_slot *slots = NULL;
    gqac_kv_pair *pairs = NULL;
    GQAC_TRY(load_kv_pairs(&x->model, &slots, &pairs, &x->public.n_kv_pairs, diag));
    x->public.kv_pairs = pairs;
    /* Whether rows are mixed is decided for a sequence, which chooses a branch of a merged
     * decoder. */
    return load_mixing(&x->model, &o, &context, true, &x->public.mixing, &x->public.n_mixing, diag);
}

static void fill_meta(info *x) {
    const loaded *m = &x->model;
    x->public.size = sizeof x->public;
    x->public.format = m->format;
    x->public.producer = m->report.producer ? m->report.producer : "";
    x->public.ir_version = m->report.ir_version;
    x->public.opset = m->report.opset;
    x->public.target = m->meta.target;
    x->public.math = m->meta.math;
    x->public.profile = m->meta.profile;
    x->public.source_digest = m->meta.source_digest;
}

static gqac_status fill_baked(info *x, gqac_diag *diag) {
    const loaded *m = &x->model;
    size_t bytes = 0;
    baked_description baked = {0};
    const void *data = load_baked(m, &bytes);
    if (!data)
        return GQAC_OK;
    GQAC_TRY(baked_describe(data, bytes, &baked, diag));
    x->public.baked_tokens = baked.tokens;
    x->public.baked_bytes = (int64_t)bytes;
    x->public.baked_kind = gqac_arena_strdup(m->arena, baked.kind);
    return x->public.baked_kind ? GQAC_OK : gqac_diag_oom(diag, "an info");
}

static gqac_status fill(info *x, const char *model, const gqac_options *o, gqac_poll *poll,
                        gqac_diag *diag) {
    gqac_status status = load_model(model, o, true, &x->model, diag);
    if (status == GQAC_OK)
        x->model.poll = poll;
    const bool partial = status == GQAC_UNSUPPORTED && x->model.report.n_unsupported;
    if (status != GQAC_OK && !partial)
        return status;
    fill_meta(x);
    status = fill_baked(x, diag);
    if (status == GQAC_OK)
        status = fill_ops(x, diag);
    if (status == GQAC_OK)
        status = partial ? fill_partial(x, diag) : fill_graph(x, o, diag);
    status = load_explain(&x->model, o->limits, status, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", model);
    return status;
}

gqac_status gqac_info_open(const char *model, const gqac_options *options, gqac_info **result,
                           gqac_diag *diag) {
    gqac_options own;
    load_parts parts;
    GQAC_TRY(load_options(options, &own, &parts, diag));
    info *x = gqac_calloc(1, sizeof *x);
    if (!x)
        return gqac_diag_oom(diag, "an info");
    gqac_float_mode callers;
    gqac_status status = gqac_float_mode_take(&callers, diag);
    if (status == GQAC_OK) {
        gqac_poll poll = {0};
        gqac_poll_begin(&poll, 0, "bytes");
        gqac_poll_limit(&poll, own.limits->compile_ms);
        status = fill(x, model, &own, &poll, diag);
        x->model.poll = NULL;
        gqac_float_mode_give_back(&callers);
    }
    if (status != GQAC_OK) {
        gqac_info_free(&x->public);
        return status;
    }
    *result = &x->public;
    return GQAC_OK;
}

void gqac_info_free(gqac_info *public) {
    info *x = (info *)public;
    if (!x)
        return;
    load_free(&x->model);
    gqac_free(x);
}
