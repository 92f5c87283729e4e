/* Making a program of a module: numbers of values, roles, KV slots, guards, and binding of
 * kernels. */
#include "runtime/program.h"

#include <string.h>

#include "ir/life.h"
#include "kv/budget.h"
#include "numerics/contract.h"
#include "ops/attention.h"
#include "runtime/positions.h"
#include "runtime/windows.h"

/* ---- numbering ----------------------------------------------------------- */

static void number_value(gqac_program *p, ir_value *value) {
    value->id = p->n_values++;
}

/* Numbers a constant. Constants of a dump have a digest but no data. */
static gqac_status number_constant(gqac_program *p, ir_value *value, gqac_diag *diag) {
    number_value(p, value);
    if (value->constant->data || !gqac_tensor_bytes(value->constant))
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_INVALID_MODEL,
                  "constant '%s' has no data: the text is a dump "
                  "without weights",
                  value->name);
    gqac_diag_hint(diag, "compile --emit text writes the weights too");
    return GQAC_INVALID_MODEL;
}

static void number_outputs(gqac_program *p, const ir_node *n) {
    const bool main = n->graph == p->module->graph;
    if (n->n_outputs > p->most_outputs)
        p->most_outputs = n->n_outputs;
    for (int i = 0; i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        number_value(p, n->outputs[i]);
        if (main && n->outputs[i]->slot >= p->n_slots)
            p->n_slots = n->outputs[i]->slot + 1;
    }
}

static gqac_status number_graph(gqac_program *p, ir_graph *graph, gqac_diag *diag) {
    for (int i = 0; i < graph->n_inputs; i++)
        number_value(p, graph->inputs[i]);
    for (int i = 0; i < graph->n_constants; i++)
        GQAC_TRY(number_constant(p, graph->constants[i], diag));
    for (ir_node *n = graph->first; n; n = n->next) {
        n->mark = 0;
        number_outputs(p, n);
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(n, &at));)
            GQAC_TRY(number_graph(p, inner, diag));
    }
    return GQAC_OK;
}

static gqac_status list_value(void *arg, ir_node *n) {
    const gqac_program *p = arg;
    for (int i = 0; i < n->n_outputs; i++)
        if (n->outputs[i])
            p->values[n->outputs[i]->id] = n->outputs[i];
    for (int i = 0; i < n->n_inputs; i++) /* constants and inputs of graphs too */
        if (n->inputs[i].value)
            p->values[n->inputs[i].value->id] = n->inputs[i].value;
    return GQAC_OK;
}

/* Lists values by number. Values that are neither used nor made, as an input of a graph may be,
 * stay NULL. */
static gqac_status list_values(gqac_program *p, gqac_diag *diag) {
    p->values = GQAC_ARENA_ARRAY(p->arena, const ir_value *, (size_t)p->n_values + 1);
    if (!p->values)
        return gqac_diag_oom(diag, "a program");
    return ir_graph_walk_all(p->module->graph, list_value, p);
}

/* Finds the last reader of each value in the arena. */
static gqac_status find_lives(gqac_program *p, gqac_diag *diag) {
    p->last = GQAC_ARENA_ARRAY(p->arena, const ir_node *, (size_t)p->n_values + 1);
    if (!p->last)
        return gqac_diag_oom(diag, "a program");
    (void)ir_life_number(p->module->graph);
    for (const ir_node *n = p->module->graph->first; n; n = n->next)
        for (int i = 0; i < n->n_outputs; i++)
            if (n->outputs[i] && n->outputs[i]->slot >= 0)
                p->last[n->outputs[i]->id] = ir_life_end(n->outputs[i]);
    for (ir_node *n = p->module->graph->first; n; n = n->next)
        n->mark = 0; /* used below for guards */
    return GQAC_OK;
}

/* ---- inputs and outputs -------------------------------------------------- */

bool program_describe(gqac_arena *arena, const ir_value *value, const char *name, gqac_io *io) {
    gqac_str text = {0};
    gqac_str_append(&text, "[");
    for (int i = 0; i < value->type.rank; i++) {
        if (i)
            gqac_str_append(&text, ",");
        ir_dim_print(&text, value->type.dims[i]);
    }
    gqac_str_append(&text, value->type.rank < 0 ? "*]" : "]");
    *io = (gqac_io){
        .size = sizeof *io, .name = name, .dtype = value->type.dtype, .rank = value->type.rank};
    io->shape = text.failed ? NULL : gqac_arena_strdup(arena, text.text);
    gqac_str_free(&text);
    return io->shape != NULL;
}

static gqac_status describe_all(gqac_program *p, gqac_diag *diag) {
    const ir_graph *g = p->module->graph;
    p->inputs = GQAC_ARENA_ARRAY(p->arena, gqac_io, (size_t)g->n_inputs + 1);
    p->outputs = GQAC_ARENA_ARRAY(p->arena, gqac_io, (size_t)g->ret->n_inputs + 1);
    if (!p->inputs || !p->outputs)
        return gqac_diag_oom(diag, "a program");
    for (p->n_inputs = 0; p->n_inputs < g->n_inputs; p->n_inputs++) {
        const ir_value *v = g->inputs[p->n_inputs];
        if (!program_describe(p->arena, v, v->name, &p->inputs[p->n_inputs]))
            return gqac_diag_oom(diag, "a program");
    }
    for (p->n_outputs = 0; p->n_outputs < g->ret->n_inputs; p->n_outputs++) {
        const ir_value *v = g->ret->inputs[p->n_outputs].value;
        const char *name = g->result_names && g->result_names[p->n_outputs]
                               ? g->result_names[p->n_outputs]
                               : v->name;
        if (!program_describe(p->arena, v, name, &p->outputs[p->n_outputs]))
            return gqac_diag_oom(diag, "a program");
    }
    return GQAC_OK;
}

/* ---- roles --------------------------------------------------------------- */

/* The logits have that name in every export; another float result may be hidden states. */
static int find_logits(const gqac_program *p) {
    for (int i = 0; i < p->n_outputs; i++)
        if (!strcmp(p->outputs[i].name, "logits"))
            return i;
    return -1;
}

/* Checks that the run time can fill every input, with the type that it has. */
static gqac_status check_roles(const gqac_program *p, gqac_diag *diag) {
    const program_roles *r = &p->roles;
    for (int i = 0; i < p->n_inputs; i++) {
        const gqac_io *io = &p->inputs[i];
        bool fits = false;
        if (i == r->input_ids && r->embedding)
            fits = io->rank == 3 && gqac_dtype_is_float(io->dtype) && io->dtype != GQAC_F64;
        else if (i == r->input_ids)
            fits = io->rank == 2 && (io->dtype == GQAC_I64 || io->dtype == GQAC_I32);
        else if (i == r->positions)
            fits = io->rank == 2 && io->dtype == GQAC_I64;
        else if (i == r->position_ids)
            fits = io->dtype == GQAC_I64 && (io->rank == 2 || r->position_planes);
        else if (i == r->past_len || i == r->new_len)
            fits = io->rank == 1 && io->dtype == GQAC_I32;
        else if (i == r->total_len)
            fits = (io->rank == 0 || io->rank == 1) && io->dtype == GQAC_I64;
        else if (i == r->logit_rows)
            fits = io->rank == 1 && io->dtype == GQAC_I64;
        if (!fits)
            GQAC_FAIL(diag, GQAC_UNSUPPORTED, "sequences cannot supply input '%s' %s%s", io->name,
                      gqac_dtype_name(io->dtype), io->shape);
    }
    return GQAC_OK;
}

/* Counts the planes of positions [n,B,S] (text, image, ...): a sequence has text alone, so all
 * planes are equal. */
static void count_planes(gqac_program *p) {
    const int i = p->roles.position_ids;
    const ir_type *type = i >= 0 ? &p->module->graph->inputs[i]->type : NULL;
    int64_t n;
    if (type && type->rank == 3 && ir_dim_is_const(type->dims[0], &n) && n >= 1 && n <= 8)
        p->roles.position_planes = (int)n;
}

/* Finds inputs_embeds: decoders after an encoder of images or sound, and models exported without
 * their embeddings. */
static void find_embeds(gqac_program *p) {
    for (int i = 0; i < p->n_inputs && p->roles.input_ids < 0; i++) {
        const ir_type *type = &p->module->graph->inputs[i]->type;
        if (!strcmp(p->inputs[i].name, "inputs_embeds") && type->rank == 3 &&
            ir_dim_is_const(type->dims[2], &p->roles.embedding) && p->roles.embedding > 0 &&
            p->roles.embedding <= INT32_MAX)
            p->roles.input_ids = i;
    }
    if (p->roles.input_ids < 0)
        p->roles.embedding = 0;
}

static gqac_status fail_logits(gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "the model has no output 'logits'");
    gqac_diag_rule(diag, "a sequence returns rows of logits [B,S,V]");
    gqac_diag_hint(diag, "another output of that shape can take its place, such as hidden states: "
                         "name it in genai_config.json (model.decoder.outputs.logits); `gqac run` "
                         "returns any output");
    return GQAC_UNSUPPORTED;
}

static gqac_status find_roles(gqac_program *p, gqac_diag *diag) {
    const struct {
        const char *name;
        int *role;
    } table[] = {
        {"position_ids", &p->roles.position_ids}, {"gqac.positions", &p->roles.positions},
        {"gqac.past_len", &p->roles.past_len},    {"gqac.new_len", &p->roles.new_len},
        {"gqac.total_len", &p->roles.total_len},  {"gqac.logit_rows", &p->roles.logit_rows},
        {"input_ids", &p->roles.input_ids}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        *table[k].role = -1;
        for (int i = 0; i < p->n_inputs; i++)
            if (!strcmp(p->inputs[i].name, table[k].name))
                *table[k].role = i;
    }
    p->roles.logits = find_logits(p);
    count_planes(p);
    if (p->stateless)
        return GQAC_OK;
    find_embeds(p);
    /* models with another name for token ids: the only input without a role */
    for (int i = 0; i < p->n_inputs && p->roles.input_ids < 0; i++) {
        bool taken = false;
        for (size_t k = 0; k + 1 < sizeof table / sizeof *table; k++)
            taken |= *table[k].role == i;
        if (!taken && p->inputs[i].rank == 2)
            p->roles.input_ids = i;
    }
    if (p->roles.input_ids < 0)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "the model has no input of token ids [B,S], which a sequence needs");
    GQAC_TRY(check_roles(p, diag));
    if (p->roles.logits < 0)
        return fail_logits(diag);
    const ir_type *logits = &p->module->graph->ret->inputs[p->roles.logits].value->type;
    int64_t rows;
    p->roles.packed =
        p->roles.new_len >= 0 && attention_is_packed(p->module->graph->inputs[p->roles.new_len]);
    p->roles.last_only = p->roles.logit_rows < 0 && logits->rank == 3 &&
                         ir_dim_is_const(logits->dims[1], &rows) && rows == 1;
    p->roles.one_token =
        ir_dim_is_const(p->module->graph->inputs[p->roles.input_ids]->type.dims[1], &rows) &&
        rows == 1;
    p->roles.every_row =
        p->roles.logit_rows >= 0 ||
        (logits->rank == 3 && logits->dims[1] &&
         logits->dims[1] == p->module->graph->inputs[p->roles.input_ids]->type.dims[1]);
    return GQAC_OK;
}

/* ---- KV slots ------------------------------------------------------------ */

static bool names_slot(const ir_node *node) {
    return op_is(node, "gqac", "kv_state");
}

/* The rows of a slot that are read before the length, if kv_tail alone reads them; 0: all may be
 * read. */
static int64_t tail_of(const ir_node *kv_state) {
    const ir_value *state = ir_node_output(kv_state, 0);
    int64_t tail = 0;
    for (const ir_use *token = state ? state->uses : NULL; token; token = token->next) {
        const ir_value *rows =
            op_is(token->node, "gqac", "kv_append") ? ir_node_output(token->node, 1) : NULL;
        for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next) {
            if (!op_is(use->node, "gqac", "kv_tail") || use != &use->node->inputs[0])
                return 0;
            const int64_t length = ir_attr_int(use->node, "length");
            tail = length > tail ? length : tail;
        }
    }
    return tail;
}

static gqac_status refuse_effect(const ir_node *n, const char *what, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "%s", what);
    ir_node_where(n, diag);
    return GQAC_INVALID_MODEL;
}

/* Checks that every kv_append continues the rows of its own slot, and every recurrence a state. */
static gqac_status check_effect(void *arg, ir_node *n) {
    enum { APPEND_TOKEN = 0, RECURRENCE_TOKEN = 3 };
    gqac_diag *diag = arg;
    if (!(n->op->flags & IR_OP_EFFECT))
        return GQAC_OK;
    if (n->graph->parent) {
        refuse_effect(n, "it changes the cache, and is in a nested graph", diag);
        gqac_diag_rule(diag, "%s is allowed in the main graph only", n->op->name);
        gqac_diag_hint(diag, "move it out of the branch or body of %s", n->graph->parent->op->name);
        return GQAC_INVALID_MODEL;
    }
    if (names_slot(n))
        return GQAC_OK;
    const bool append = op_is(n, "gqac", "kv_append");
    const ir_value *token = ir_node_input(n, append ? APPEND_TOKEN : RECURRENCE_TOKEN);
    if (token && token->def && names_slot(token->def) &&
        append == (ir_attr_int(token->def, "rows") == 0) &&
        (!append || ir_attr_int(token->def, "slot") == ir_attr_int(n, "slot")))
        return GQAC_OK;
    refuse_effect(n, "its token is not that of its slot", diag);
    gqac_diag_rule(diag, "the token of %s is the result of a kv_state %s", n->op->name,
                   append ? "with rows = 0 and the same slot" : "with rows > 0");
    gqac_diag_hint(diag, "pass it the result of that kv_state directly");
    return GQAC_INVALID_MODEL;
}

static gqac_status find_kv(gqac_program *p, gqac_diag *diag) {
    const ir_graph *g = p->module->graph;
    for (const ir_node *n = g->first; n; n = n->next)
        p->n_kv += names_slot(n);
    p->kv = GQAC_ARENA_ARRAY(p->arena, kv_slot, (size_t)p->n_kv + 1);
    p->kv_pairs = GQAC_ARENA_ARRAY(p->arena, gqac_kv_pair, (size_t)p->n_kv + 1);
    if (!p->kv || !p->kv_pairs)
        return gqac_diag_oom(diag, "a program");
    for (const ir_node *n = g->first; n; n = n->next) {
        if (!names_slot(n))
            continue;
        const int64_t i = ir_attr_int(n, "slot");
        if (i < 0 || i >= p->n_kv || p->kv[i].past)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "kv_state: slot %lld is out of range or used twice",
                      (long long)i);
        p->kv[i] = (kv_slot){.past = ir_attr_get(n, "past")->s,
                             .present = ir_attr_get(n, "present")->s,
                             .heads = ir_attr_int(n, "heads"),
                             .head_size = ir_attr_int(n, "head_size"),
                             .dtype = ir_attr_get(n, "dtype")->dtype,
                             .rows = ir_attr_int(n, "rows"),
                             .columns = p->target->columns && p->target->columns(n),
                             .tail = tail_of(n),
                             .window = windows_find(n),
                             .coded = tail_of(n) == 0};
        if (p->kv[i].rows && p->roles.embedding)
            GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                      "recurrent states ('%s') are not supported with inputs_embeds: a rewind "
                      "would need the embeddings again, and they are not stored",
                      p->kv[i].past);
        p->kv_pairs[i] = (gqac_kv_pair){.size = sizeof *p->kv_pairs,
                                        .past = p->kv[i].past,
                                        .present = p->kv[i].present,
                                        .heads = p->kv[i].heads,
                                        .head_size = p->kv[i].head_size,
                                        .dtype = p->kv[i].dtype,
                                        .rows = p->kv[i].rows};
    }
    GQAC_TRY(ir_graph_walk(p->module->graph, check_effect, diag));
    if (!p->n_kv)
        return GQAC_OK;
    if (p->stateless) {
        gqac_diag_set(diag, GQAC_USAGE, "the graph keeps the state of a sequence");
        gqac_diag_rule(diag, "a stateless run has all past and present as inputs and outputs");
        gqac_diag_hint(diag, "run it as a sequence, for example with score or generate");
        return GQAC_USAGE;
    }
    GQAC_TRY(kv_pool_create(p->n_kv, p->kv, &p->pool, diag));
    for (int i = 0; i < p->n_kv; i++) {
        p->kv[i] = *kv_pool_slot(p->pool, i);
        p->kv_pairs[i].tail = p->kv[i].tail;
        p->kv_pairs[i].window = p->kv[i].window;
    }
    kv_pool_set_budget(p->pool, p->budget);
    return GQAC_OK;
}

/* ---- guards -------------------------------------------------------------- */

/* Marks the nodes on which a value depends in the main graph; false if these include an input other
 * than gqac.total_len, an effect or a nested graph. Iterative: nodes are visited from last to
 * first. */
static bool mark_slice(gqac_program *p, const ir_value *value, unsigned bit) {
    const ir_graph *g = p->module->graph;
    const ir_value *total = g->inputs[p->roles.total_len];
    if (value->def)
        ir_node_root(value->def)->mark |= bit;
    bool pure = value->def || value->constant || value == total;
    for (ir_node *n = g->last; n; n = n->prev) {
        if (!(ir_node_root(n)->mark & bit))
            continue;
        pure &= !(n->op->flags & IR_OP_EFFECT) && !ir_holds_graphs(n);
        for (int i = 0; i < n->n_inputs; i++) {
            const ir_value *v = n->inputs[i].value;
            if (v && v->def)
                ir_node_root(v->def)->mark |= bit;
            else if (v && !v->constant)
                pure &= v == total;
        }
    }
    return pure;
}

/* Fills `pure`, by value id: false for values on which no guard can depend, because they are
 * computed from what mark_slice refuses. So the walk of mark_slice, which visits the whole graph,
 * is made for only a few of many Ifs. */
static void find_pure(const gqac_program *p, bool *pure) {
    const ir_graph *g = p->module->graph;
    pure[g->inputs[p->roles.total_len]->id] = true;
    for (int i = 0; i < g->n_constants; i++)
        pure[g->constants[i]->id] = true;
    for (const ir_node *n = g->first; n; n = n->next) {
        bool all = !(n->op->flags & IR_OP_EFFECT) && !ir_holds_graphs(n);
        for (int i = 0; i < n->n_inputs; i++)
            all = all && (!n->inputs[i].value || pure[n->inputs[i].value->id]);
        for (int i = 0; i < n->n_outputs; i++)
            if (n->outputs[i])
                pure[n->outputs[i]->id] = all;
    }
}

static gqac_status find_guards(gqac_program *p, gqac_diag *diag) {
    ir_graph *g = p->module->graph;
    if (p->stateless || p->roles.total_len < 0)
        return GQAC_OK;
    bool *pure = GQAC_ARENA_ARRAY(p->arena, bool, (size_t)p->n_values + 1);
    if (!pure)
        return gqac_diag_oom(diag, "a program");
    find_pure(p, pure);
    for (ir_node *n = g->first; n; n = n->next) {
        if (!op_is(n, "", "If") || !n->inputs[0].value || !pure[n->inputs[0].value->id])
            continue;
        if (p->n_guards == PROGRAM_MAX_GUARDS)
            GQAC_FAIL(diag, GQAC_LIMIT,
                      "the model has more than %d If nodes that depend on the total length",
                      PROGRAM_MAX_GUARDS);
        const unsigned bit = 1u << p->n_guards;
        if (mark_slice(p, n->inputs[0].value, bit)) {
            p->guards[p->n_guards++] = n;
            continue;
        }
        for (ir_node *m = g->first; m; m = m->next)
            m->mark &= ~bit;
    }
    return GQAC_OK;
}

/* ---- binding of kernels --------------------------------------------------- */

static gqac_status bind_node(void *arg, ir_node *n) {
    const target_binding *b = arg;
    if (n->fused_into)
        return GQAC_OK;
    const gqac_status status = target_bind(b, n);
    if (status != GQAC_OK && b->diag && !b->diag->where[0])
        ir_node_where(n, b->diag);
    return status;
}

/* ---- creation ------------------------------------------------------------- */

void program_close(gqac_program *p) {
    gqac_snapshot_free(p->baked);
    kv_pool_free(p->pool);
    (void)pthread_mutex_destroy(&p->fingerprint->lock);
    if (p->target->close_device)
        p->target->close_device(p->target_state);
}

/* Fills a program whose target is open. */
static gqac_status make(gqac_program *p, bool bf16, gqac_diag *diag) {
    const target_binding binding = {
        .arena = p->arena, .state = p->target_state, .bf16 = bf16, .diag = diag};
    GQAC_TRY(number_graph(p, p->module->graph, diag));
    GQAC_TRY(list_values(p, diag));
    GQAC_TRY(find_lives(p, diag));
    GQAC_TRY(describe_all(p, diag));
    GQAC_TRY(find_roles(p, diag));
    GQAC_TRY(find_guards(p, diag));
    GQAC_TRY(find_kv(p, diag));
    GQAC_TRY(ir_graph_walk(p->module->graph, bind_node, (void *)(uintptr_t)&binding));
    p->most_tokens = p->stateless ? INT64_MAX : positions_capacity(p);
    return GQAC_OK;
}

gqac_status program_create(gqac_arena *arena, ir_module *module, const gqac_target *target,
                           const gqac_options *options, gqac_program **program, gqac_diag *diag) {
    gqac_program *p = GQAC_ARENA_NEW(arena, gqac_program);
    if (!p)
        return gqac_diag_oom(diag, "a program");
    p->arena = arena;
    p->module = module;
    p->target = target;
    p->stateless = options->stateless;
    p->log = *options->log;
    p->budget = GQAC_ARENA_NEW(arena, gqac_budget);
    p->fingerprint = GQAC_ARENA_NEW(arena, program_fingerprint);
    if (!p->budget || !p->fingerprint)
        return gqac_diag_oom(diag, "a program");
    if (options->device != 0 && !target->open_device)
        GQAC_FAIL(diag, GQAC_USAGE, "device %d: target '%s' has no devices", options->device,
                  target->name);
    if (target->open_device)
        GQAC_TRY(target->open_device(options->device, &p->log, &p->target_state, diag));
    else if (target->open)
        GQAC_TRY(target->open(&p->target_state, diag));
    const bool bf16 = !strcmp(options->math, "bf16");
    const char *own = bf16 && target->bf16_name ? target->bf16_name(p->target_state) : NULL;
    gqac_numerics_profile(p->profile, target->name, own ? own : options->math);
    (void)pthread_mutex_init(&p->fingerprint->lock, NULL); /* never fails on Linux */
    const gqac_status status = make(p, bf16, diag);
    if (status != GQAC_OK) {
        program_close(p);
        return status;
    }
    *program = p;
    return GQAC_OK;
}

void gqac_program_free(gqac_program *program) {
    if (!program)
        return;
    program_close(program);
    if (program->release)
        program->release(program->backing);
    gqac_arena_free(program->arena); /* the program itself lies in it */
}

int gqac_program_kv_pairs(const gqac_program *program, const gqac_kv_pair **pairs) {
    *pairs = program->kv_pairs;
    return program->n_kv;
}

int gqac_program_inputs(const gqac_program *program, const gqac_io **inputs) {
    *inputs = program->inputs;
    return program->n_inputs;
}

int gqac_program_outputs(const gqac_program *program, const gqac_io **outputs) {
    *outputs = program->outputs;
    return program->n_outputs;
}

int gqac_program_mixing(const gqac_program *program, const gqac_mixing **mixing) {
    *mixing = program->mixing;
    return program->n_mixing;
}

bool gqac_program_last_logits(const gqac_program *program) {
    return program->roles.last_only;
}

bool gqac_program_padding(const gqac_program *program, const gqac_mixing **why) {
    if (why)
        *why = program->padded_by.op ? &program->padded_by : NULL;
    return !program->stateless && !program->roles.packed;
}

const char *gqac_program_profile(const gqac_program *program) {
    return program->profile;
}

double gqac_program_tolerance(const gqac_program *program) {
    return program->tolerance;
}

const char *gqac_program_level(const gqac_program *program) {
    const gqac_target *t = program->target;
    return t->level ? t->level(program->target_state) : NULL;
}

int64_t gqac_program_weight_bytes(const gqac_program *program) {
    return ir_constant_bytes(program->module->graph);
}

int64_t gqac_program_max_tokens(const gqac_program *program) {
    return program->most_tokens;
}

int64_t gqac_program_memory_used(const gqac_program *program) {
    return (int64_t)atomic_load(&program->budget->used);
}

bool gqac_program_is_stateless(const gqac_program *program) {
    return program->stateless;
}

int64_t gqac_program_embedding_size(const gqac_program *program) {
    return program->stateless ? 0 : program->roles.embedding;
}

int64_t gqac_program_vocabulary(const gqac_program *program) {
    int64_t size = 0;
    if (program->roles.logits < 0)
        return 0;
    const ir_value *v = program->module->graph->ret->inputs[program->roles.logits].value;
    if (v->type.rank > 0)
        (void)ir_dim_is_const(v->type.dims[v->type.rank - 1], &size);
    return size;
}
