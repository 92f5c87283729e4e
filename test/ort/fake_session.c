/* Sessions of the fake ONNX Runtime: claims, fusion, compilation and a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ort/fake_impl.h"

ort_status *CreateEpFactories(const char *registered_name, const ort_api_base *base,
                              const ort_logger *logger, ort_factory **factories,
                              size_t max_factories, size_t *n_factories);

enum { MOST_ELEMENTS = 1 << 12, WITH_NESTED = 12700 };

/* Values of a run by their names; they are freed with the session's. */
typedef struct named {
    const char *name;
    ort_value *value;
    struct named *next;
} named;

typedef struct session {
    fake_state state;
    ort_ep *ep;
    ort_graph *main;  /* as the model has it */
    ort_graph *fused; /* with the fused nodes in place of those that were claimed */
    ort_support support;
    ort_graph **part_graphs; /* [support.n] */
    ort_node **part_nodes;   /* [support.n]: in `fused` */
    ort_compute **computes;
    ort_node **contexts;
    named *values;
} session;

static const ort_api *api(void) {
    return fake_base.GetApi(ORT_VERSION);
}

/* Notes an error. True: there is none. */
static bool passes(session *s, ort_status *status) {
    if (!status)
        return true;
    snprintf(s->state.result->why, sizeof s->state.result->why, "%s",
             api()->GetErrorMessage(status));
    api()->ReleaseStatus(status);
    return false;
}

/* ---- fusion -------------------------------------------------------------- */

static bool in_group(const fake_group *group, const ort_node *node) {
    for (size_t i = 0; i < group->n; i++)
        if (group->nodes[i] == node)
            return true;
    return false;
}

static bool has_value(const ort_value_info *const *list, size_t n, const ort_value_info *info) {
    for (size_t i = 0; i < n; i++)
        if (list[i] == info)
            return true;
    return false;
}

static bool makes(const fake_group *group, const ort_value_info *info) {
    for (size_t i = 0; i < group->n; i++)
        if (has_value(group->nodes[i]->out, group->nodes[i]->proto->n_output, info))
            return true;
    return false;
}

static bool reads(const ort_node *node, const ort_value_info *info) {
    return has_value(node->in, node->proto->n_input, info) ||
           has_value(node->implicit, node->n_implicit, info);
}

static void add(fake_list *list, const ort_value_info *info) {
    if (info && !has_value(list->values, list->n, info))
        list->values[list->n++] = info;
}

/* What the nodes read from others. Runtimes before 1.27 leave out what only nested graphs read. */
static fake_list inputs_of(const session *s, const fake_group *group, bool constants) {
    const bool nested = strcmp(s->state.options->version, "1.27") >= 0;
    size_t most = 0;
    for (size_t i = 0; i < group->n; i++)
        most += group->nodes[i]->proto->n_input + group->nodes[i]->n_implicit;
    fake_list list = {fake_alloc(most, sizeof(void *)), 0};
    for (size_t i = 0; i < group->n; i++) {
        const ort_node *node = group->nodes[i];
        for (size_t k = 0; k < node->proto->n_input; k++)
            if (node->in[k] && node->in[k]->constant == constants && !makes(group, node->in[k]))
                add(&list, node->in[k]);
        for (size_t k = 0; (nested || constants) && k < node->n_implicit; k++)
            if (node->implicit[k]->constant == constants && !makes(group, node->implicit[k]))
                add(&list, node->implicit[k]);
    }
    return list;
}

/* What others read, and what the graph outputs. */
static fake_list outputs_of(const session *s, const fake_group *group) {
    size_t most = 0;
    for (size_t i = 0; i < group->n; i++)
        most += group->nodes[i]->proto->n_output;
    fake_list list = {fake_alloc(most, sizeof(void *)), 0};
    for (size_t i = 0; i < group->n; i++)
        for (size_t k = 0; k < group->nodes[i]->proto->n_output; k++) {
            const ort_value_info *info = group->nodes[i]->out[k];
            bool needed = info && info->output;
            for (size_t m = 0; info && !needed && m < s->main->n_nodes; m++)
                needed = !in_group(group, &s->main->nodes[m]) && reads(&s->main->nodes[m], info);
            if (needed)
                add(&list, info);
        }
    return list;
}

static char **names_of(const fake_list *list) {
    char **names = fake_alloc(list->n, sizeof(char *));
    for (size_t i = 0; i < list->n; i++)
        names[i] = gqac_arena_strdup(fake_now->arena, list->values[i]->name);
    return names;
}

static Onnx__ValueInfoProto **infos_of(const fake_list *list) {
    Onnx__ValueInfoProto **infos = fake_alloc(list->n, sizeof(void *));
    for (size_t i = 0; i < list->n; i++) {
        infos[i] = fake_alloc(1, sizeof **infos);
        onnx__value_info_proto__init(infos[i]);
        infos[i]->name = gqac_arena_strdup(fake_now->arena, list->values[i]->name);
        infos[i]->type = (Onnx__TypeProto *)(uintptr_t)list->values[i]->declared;
    }
    return infos;
}

/* The graph of a fused node. */
static bool make_part(session *s, size_t which, Onnx__NodeProto *fused) {
    const fake_group *group = &s->support.groups[which];
    const Onnx__GraphProto *all = s->state.model->graph;
    const fake_list in = inputs_of(s, group, false), constants = inputs_of(s, group, true);
    const fake_list out = outputs_of(s, group);
    Onnx__GraphProto *proto = fake_alloc(1, sizeof *proto);
    onnx__graph_proto__init(proto);
    proto->n_node = group->n;
    proto->node = fake_alloc(group->n, sizeof(void *));
    for (size_t i = 0; i < group->n; i++)
        proto->node[i] = (Onnx__NodeProto *)(uintptr_t)group->nodes[i]->proto;
    proto->n_input = in.n;
    proto->input = infos_of(&in);
    proto->n_output = out.n;
    proto->output = infos_of(&out);
    proto->n_value_info = all->n_value_info;
    proto->value_info = all->value_info;
    proto->initializer = fake_alloc(constants.n, sizeof(void *));
    for (size_t i = 0; i < constants.n; i++)
        proto->initializer[proto->n_initializer++] =
            (Onnx__TensorProto *)(uintptr_t)constants.values[i]->proto;
    fused->name = gqac_arena_printf(fake_now->arena, "part_%zu", which);
    fused->op_type = fused->name;
    fused->n_input = in.n;
    fused->input = names_of(&in);
    fused->n_output = out.n;
    fused->output = names_of(&out);
    s->part_graphs[which] = fake_graph(proto, NULL, NULL);
    return s->part_graphs[which] != NULL;
}

/* The main graph with other nodes, one for each group, in place of those of the groups. */
static Onnx__GraphProto *replace_nodes(const session *s, Onnx__NodeProto *const *others) {
    const Onnx__GraphProto *all = s->state.model->graph;
    Onnx__GraphProto *proto = gqac_arena_copy(fake_now->arena, all, sizeof *all);
    if (!proto)
        fake_broken("no memory for the fake");
    proto->node = fake_alloc(s->support.n + all->n_node, sizeof(void *));
    proto->n_node = s->support.n;
    if (s->support.n)
        memcpy(proto->node, others, s->support.n * sizeof(void *));
    for (size_t i = 0; i < all->n_node; i++) {
        bool claimed = false;
        for (size_t k = 0; k < s->support.n; k++)
            claimed |= in_group(&s->support.groups[k], &s->main->nodes[i]);
        if (!claimed)
            proto->node[proto->n_node++] = all->node[i];
    }
    return proto;
}

static bool fuse(session *s) {
    const size_t n = s->support.n;
    Onnx__NodeProto **protos = fake_alloc(n, sizeof(void *));
    s->part_graphs = fake_alloc(n, sizeof(void *));
    s->part_nodes = fake_alloc(n, sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        protos[i] = fake_alloc(1, sizeof **protos);
        onnx__node_proto__init(protos[i]);
        if (!make_part(s, i, protos[i]))
            return false;
        s->state.result->n_nodes += s->support.groups[i].n;
    }
    s->fused = fake_graph(replace_nodes(s, protos), NULL, NULL);
    for (size_t i = 0; s->fused && i < n; i++)
        s->part_nodes[i] = &s->fused->nodes[i];
    return s->fused != NULL;
}

/* ---- a run --------------------------------------------------------------- */

/* The size of a dimension that only has a name: 0 to 3. */
static int64_t size_of(const session *s, const char *name) {
    unsigned sum = 0;
    for (; *name; name++)
        sum += (unsigned char)*name;
    return s->state.options->sizes >> (sum % 8 * 2) & 3;
}

/* A value that the caller of the session passes. NULL: it cannot know which. */
static ort_value *make_input(const session *s, const ort_value_info *info) {
    static const unsigned char pattern[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0,    0,
                                            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0x3f};
    const ort_tensor_info *type = info->type ? &info->type->tensor : NULL;
    int64_t dims[FAKE_RANK], count = 1;
    if (info->value)
        return fake_tensor(info->proto);
    if (!type || !type->has_shape || type->rank > FAKE_RANK || type->element == FAKE_STRING)
        return NULL;
    for (size_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i] >= 0 ? type->dims[i] : size_of(s, type->names[i]);
        if (__builtin_mul_overflow(count, dims[i], &count) || count > MOST_ELEMENTS)
            return NULL;
    }
    ort_value *value = fake_value(type->element, dims, type->rank);
    const size_t each = value && count ? value->bytes / (size_t)count : 0;
    const bool mask = strstr(info->name, "mask") && type->element != 1;
    for (size_t i = 0; value && i < value->bytes; i++)
        ((unsigned char *)value->data)[i] =
            mask || type->element == 9 ? each && i % each == 0
                                       : pattern[(i + strlen(info->name)) % sizeof pattern];
    return value;
}

static const ort_value *find_value(session *s, const ort_value_info *info) {
    for (const named *at = s->values; at; at = at->next)
        if (!strcmp(at->name, info->name))
            return at->value;
    ort_value *value = make_input(s, info);
    named *made = fake_alloc(1, sizeof *made);
    *made = (named){info->name, value, s->values};
    s->values = made;
    return value;
}

static void add_outputs(session *s, ort_kernel_context *context) {
    uint64_t *sum = &s->state.result->outputs;
    for (size_t i = 0; i < context->node->proto->n_output; i++) {
        const ort_value *value = context->out[i];
        if (!value)
            continue;
        for (size_t k = 0; k < value->bytes; k++)
            *sum = (*sum ^ ((const unsigned char *)value->data)[k]) * 0x100000001b3U;
        named *made = fake_alloc(1, sizeof *made);
        *made = (named){context->node->out[i]->name, context->out[i], s->values};
        s->values = made;
    }
}

static bool run_part(session *s, size_t which) {
    const ort_node *node = s->part_nodes[which];
    ort_compute *compute = s->computes[which];
    ort_kernel_context context = {.node = node};
    void *state = NULL;
    context.in = fake_alloc(node->proto->n_input, sizeof(void *));
    context.out = fake_alloc(node->proto->n_output, sizeof(void *));
    for (size_t i = 0; i < node->proto->n_input; i++)
        if (node->in[i] && !(context.in[i] = find_value(s, node->in[i])))
            return false;
    if (!passes(s, compute->CreateState(compute, NULL, &state)))
        return false;
    const bool done = passes(s, compute->Compute(compute, state, &context));
    compute->ReleaseState(compute, state);
    if (done)
        add_outputs(s, &context);
    for (size_t i = 0; !done && i < node->proto->n_output; i++)
        fake_value_free(context.out[i]);
    return done;
}

/* ---- a session ----------------------------------------------------------- */

static void note_context(const session *s) {
    Onnx__NodeProto **protos = fake_alloc(s->support.n, sizeof(void *));
    fake_result *result = s->state.result;
    for (size_t i = 0; i < s->support.n; i++) {
        if (!s->contexts[i])
            return;
        protos[i] = (Onnx__NodeProto *)(uintptr_t)s->contexts[i]->proto;
    }
    Onnx__ModelProto *model =
        gqac_arena_copy(fake_now->arena, s->state.model, sizeof *s->state.model);
    if (!model)
        fake_broken("no memory for the fake");
    model->graph = replace_nodes(s, protos);
    result->context = model;
}

static bool compile(session *s) {
    const size_t n = s->support.n;
    s->computes = fake_alloc(n, sizeof(void *));
    s->contexts = fake_alloc(n, sizeof(void *));
    const ort_graph **graphs = fake_alloc(n, sizeof(void *));
    const ort_node **nodes = fake_alloc(n, sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        graphs[i] = s->part_graphs[i];
        nodes[i] = s->part_nodes[i];
    }
    if (!n || !passes(s, s->ep->Compile(s->ep, graphs, nodes, n, s->computes, s->contexts)))
        return !n;
    for (size_t i = 0; i < n; i++)
        if (!s->computes[i])
            fake_broken("a claimed node that is not compiled");
    note_context(s);
    return true;
}

static void run_session(session *s) {
    fake_result *result = s->state.result;
    s->support.state = &s->state;
    if (!passes(s, s->ep->GetCapability(s->ep, s->main, &s->support)))
        return; /* the runtime logs it, and does without the provider */
    result->n_parts = s->support.n;
    if (!fuse(s))
        return;
    result->created = compile(s);
    bool good = result->created && s->support.n;
    for (size_t i = 0; i < s->support.n && good; i++)
        good = run_part(s, i);
    result->ran = good;
    if (s->computes)
        s->ep->ReleaseNodeComputeInfos(s->ep, s->computes, s->support.n);
}

static void free_values(session *s) {
    for (const named *at = s->values; at; at = at->next)
        fake_value_free(at->value);
    while (s->state.values) {
        ort_value *value = s->state.values;
        s->state.values = value->next;
        fake_value_free(value);
    }
}

bool fake_session(const Onnx__ModelProto *model, const fake_options *options, gqac_arena *arena,
                  fake_result *result) {
    session s = {.state = {model, options, arena, NULL, 0, 0, result}};
    ort_factory *factory = NULL;
    size_t n = 0;
    *result = (fake_result){.outputs = 0xcbf29ce484222325U};
    fake_now = &s.state;
    s.main = model->graph ? fake_graph(model->graph, NULL, NULL) : NULL;
    if (s.main && passes(&s, CreateEpFactories("gqac", &fake_base, NULL, &factory, 1, &n)) && n &&
        passes(&s, factory->CreateEp(factory, NULL, NULL, 0, NULL, NULL, &s.ep))) {
        run_session(&s);
        factory->ReleaseEp(factory, s.ep);
    }
    free_values(&s);
    fake_now = NULL;
    if (s.state.live)
        fake_broken("something of the runtime that the provider does not release");
    return s.main != NULL;
}
