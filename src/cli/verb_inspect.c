/* gqac inspect MODEL: what the model contains and needs. */
#include <string.h>

#include "cli/inspect.h"
#include "cli/sandboxing.h"

static const cli_flag flags[] = {
    {"ops", NULL,
     "how often each op occurs; which groups of ops a stateless run replaces by one op, and what "
     "prevents it for others"},
    {"io", NULL, "inputs and outputs of the graph"},
    {"kv", "[" CLI_KINDS "]", "past/present pairs; kind of cache for --memory (contiguous)"},
    {"invariance", NULL,
     "nodes that mix the rows of a call, so that results may depend on how tokens are split into "
     "calls; if there are none, the model is split-safe"},
    {"verify", NULL, "checks every byte of an artefact, weights included"},
    {"memory", "N",
     "memory that a sequence of N tokens needs: weights, cache, activations, scratch"},
    {"plan", NULL,
     "kernels, memory traffic and barriers of one token after the N cached ones of --memory N (0)"},
    {"limits", NULL, "the limits that --limit can set, and their values"},
    SANDBOXING_FLAG("no file"),
    {NULL, NULL, NULL},
};

/* ---- json ---------------------------------------------------------------- */

static json_t *io_json(const gqac_io *list, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_pack("{s:o, s:s, s:s}", "name", cli_text_json(list[i].name),
                                             "dtype", gqac_dtype_name(list[i].dtype), "shape",
                                             list[i].shape));
    return all;
}

/* What is not known of a graph with unsupported nodes is null. */
static json_t *known(const gqac_info *x, json_t *value) {
    if (!x->n_unsupported)
        return value;
    json_decref(value);
    return json_null();
}

static json_t *kv_json(const gqac_info *x) {
    json_t *all = json_array();
    for (int i = 0; i < x->n_kv_pairs; i++) {
        const gqac_kv_pair *p = &x->kv_pairs[i];
        json_t *pair =
            json_pack("{s:o, s:o, s:I, s:I, s:s}", "past", cli_text_json(p->past), "present",
                      cli_text_json(p->present), "heads", (json_int_t)p->heads, "head_size",
                      (json_int_t)p->head_size, "dtype", gqac_dtype_name(p->dtype));
        if (pair && p->rows)
            json_object_set_new(pair, "rows", json_integer((json_int_t)p->rows));
        json_array_append_new(all, pair);
    }
    return all;
}

/* How often each op was raised to. */
static json_t *raised_json(const gqac_info *x) {
    json_t *counts = json_object();
    for (int i = 0; i < x->n_raised; i++) {
        const gqac_raised *r = &x->raised[i];
        const json_int_t n = json_integer_value(json_object_get(counts, r->what));
        if (!r->why)
            json_object_set_new(counts, r->what, json_integer(n + 1));
    }
    return counts;
}

static json_t *not_raised_json(const gqac_info *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->n_raised; i++) {
        const gqac_raised *r = &x->raised[i];
        if (r->why)
            json_array_append_new(list,
                                  json_pack("{s:s, s:o, s:o, s:s, s:s}", "what", r->what, "node",
                                            cli_text_json(r->node), "stopped_by",
                                            cli_text_json(r->stop), "op", r->op, "reason", r->why));
    }
    return list;
}

/* A limit without a maximum is null. */
static json_t *limits_json(const cli *c) {
    const char *name, *summary;
    int64_t value;
    json_t *all = json_object();
    for (int i = 0; gqac_limit_at(i, &c->limits, &name, &summary, &value); i++)
        json_object_set_new(all, name, value == INT64_MAX ? json_null() : json_integer(value));
    return all;
}

static void print_json(const cli *c, const gqac_info *x, const inspect_costs *costs) {
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:I, s:o}", "format", x->format, "producer", x->producer,
                  "ir_version", (json_int_t)x->ir_version, "opset", (json_int_t)x->opset,
                  "parameters", known(x, json_integer(x->parameters)));
    json_t *ops = json_object(), *unsupported = json_array(), *mixing = json_array();
    for (int i = 0; i < x->n_ops; i++)
        json_object_set_new(ops, x->ops[i].op, json_integer(x->ops[i].count));
    for (int i = 0; i < x->n_unsupported; i++) {
        const gqac_unsupported *u = &x->unsupported[i];
        json_array_append_new(unsupported,
                              json_pack("{s:s, s:s, s:i, s:o}", "op", u->op, "reason", u->reason,
                                        "nodes", u->count, "first", cli_text_json(u->first)));
    }
    for (int i = 0; i < x->n_mixing; i++)
        json_array_append_new(mixing, json_pack("{s:s, s:o}", "op", x->mixing[i].op, "node",
                                                cli_text_json(x->mixing[i].node)));
    json_object_set_new(root, "ops", ops);
    json_object_set_new(root, "unsupported", unsupported);
    json_object_set_new(root, "inputs", io_json(x->inputs, x->n_inputs));
    json_object_set_new(root, "outputs", io_json(x->outputs, x->n_outputs));
    json_object_set_new(root, "kv_pairs", known(x, kv_json(x)));
    json_object_set_new(root, "mixing", known(x, mixing));
    json_object_set_new(root, "raised", raised_json(x));
    json_object_set_new(root, "not_raised", not_raised_json(x));
    if (x->target)
        json_object_set_new(root, "artefact",
                            json_pack("{s:s, s:s, s:s, s:s}", "target", x->target, "math", x->math,
                                      "profile", x->profile, "source_digest", x->source_digest));
    if (x->baked_kind)
        json_object_set_new(root, "baked",
                            json_pack("{s:I, s:I, s:s}", "tokens", (json_int_t)x->baked_tokens,
                                      "bytes", (json_int_t)x->baked_bytes, "kind", x->baked_kind));
    json_object_set_new(root, "limits", limits_json(c));
    inspect_costs_json(costs, root);
    cli_print_json(root);
}

/* ---- table --------------------------------------------------------------- */

static void print_io(const char *title, const gqac_io *list, int n) {
    printf("%s\n", title);
    for (int i = 0; i < n; i++)
        printf("  %-32s %s%s\n", cli_shown(list[i].name).s, gqac_dtype_name(list[i].dtype),
               cli_shown(list[i].shape).s);
}

static void print_unsupported(const gqac_info *x) {
    if (x->n_unsupported)
        printf("unsupported\n");
    for (int i = 0; i < x->n_unsupported; i++) {
        const gqac_unsupported *u = &x->unsupported[i];
        printf("  %-40s %s (%d node%s, first '%s')\n", cli_shown(u->op).s, cli_shown(u->reason).s,
               u->count, u->count == 1 ? "" : "s", cli_shown(u->first).s);
    }
}

/* A length and what follows it. */
static void print_length(int64_t length, const char *end) {
    if (length)
        printf("%lld%s", (long long)length, end);
    else
        printf("?%s", end);
}

static void print_kv(const gqac_info *x) {
    if (x->n_unsupported) {
        printf("past/present pairs: unknown\n");
        return;
    }
    printf("past/present pairs: %d\n", x->n_kv_pairs);
    for (int i = 0; i < x->n_kv_pairs; i++) {
        const gqac_kv_pair *p = &x->kv_pairs[i];
        printf("  %-32s %-24s %s[", cli_shown(p->past).s, cli_shown(p->present).s,
               gqac_dtype_name(p->dtype));
        print_length(p->heads, ",");
        if (p->rows)
            print_length(p->rows, ",");
        print_length(p->head_size, p->rows ? "] state\n" : "]\n");
    }
}

static void print_invariance(const gqac_info *x) {
    printf("split-safe: %s\n", x->n_unsupported ? "unknown" : x->n_mixing ? "no" : "yes");
    for (int i = 0; i < x->n_mixing; i++)
        printf("  node '%s' (%s) mixes rows\n", cli_shown(x->mixing[i].node).s,
               cli_shown(x->mixing[i].op).s);
}

static void print_raised(const gqac_info *x) {
    const char *name;
    json_t *count, *counts = raised_json(x);
    if (json_object_size(counts))
        printf("raised in a stateless run\n");
    json_object_foreach(counts, name, count)
        printf("  %-48s %lld\n", name, (long long)json_integer_value(count));
    json_decref(counts);
    for (int i = 0, any = 0; i < x->n_raised; i++) {
        const gqac_raised *r = &x->raised[i];
        if (!r->why)
            continue;
        if (!any++)
            printf("not raised in a stateless run\n");
        printf("  %s at '%s', for node '%s' (%s): %s\n", r->what, cli_shown(r->node).s,
               cli_shown(r->stop).s, cli_shown(r->op).s, cli_shown(r->why).s);
    }
}

static void print_limits(const cli *c) {
    const char *name, *summary;
    int64_t value;
    printf("limits\n");
    for (int i = 0; gqac_limit_at(i, &c->limits, &name, &summary, &value); i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)value);
        printf("  %-16s %15s  %s\n", name, value == INT64_MAX ? "none" : number, summary);
    }
}

static void print_table(const cli *c, const gqac_info *x, const inspect_costs *costs) {
    const bool ops = cli_switch(c, "ops"), io = cli_switch(c, "io"),
               kv = cli_value(c, "kv") != NULL;
    const bool invariance = cli_switch(c, "invariance"), limits = cli_switch(c, "limits");
    const bool all = !(ops || io || kv || invariance || limits || costs->plan || costs->has_memory);
    printf("format %s", x->format);
    if (x->opset)
        printf(", IR version %lld, opset %lld", (long long)x->ir_version, (long long)x->opset);
    if (x->opset && *x->producer)
        printf(", producer %s", cli_shown(x->producer).s);
    if (x->parameters < 0)
        printf(", parameters unknown\n");
    else
        printf(", %lld parameters\n", (long long)x->parameters);
    if (x->target)
        printf("artefact for --target %s --math %s, profile %s\nsource digest %s\n",
               cli_shown(x->target).s, cli_shown(x->math).s, cli_shown(x->profile).s,
               cli_shown(x->source_digest).s);
    if (x->baked_kind)
        printf("baked prefix: %lld tokens, %lld bytes, kv cache %s\n", (long long)x->baked_tokens,
               (long long)x->baked_bytes, cli_shown(x->baked_kind).s);
    if (ops || all)
        printf("ops\n");
    for (int i = 0; (ops || all) && i < x->n_ops; i++)
        printf("  %-48s %d\n", cli_shown(x->ops[i].op).s, x->ops[i].count);
    if (ops || all)
        print_raised(x);
    print_unsupported(x);
    if (io || all) {
        print_io("inputs", x->inputs, x->n_inputs);
        print_io("outputs", x->outputs, x->n_outputs);
    }
    if (kv || all)
        print_kv(x);
    if (invariance || all)
        print_invariance(x);
    if (limits || all)
        print_limits(c);
    inspect_costs_print(costs);
}

static gqac_status print_info(cli *c, const gqac_info *info, inspect_costs *costs) {
    if (!info->n_unsupported)
        GQAC_TRY(inspect_costs_open(c, info, costs));
    if (cli_json(c))
        print_json(c, info, costs);
    else
        print_table(c, info, costs);
    return GQAC_OK;
}

static gqac_status inspect(cli *c, bool *supported) {
    char path[4096];
    gqac_options options;
    gqac_info *info = NULL;
    inspect_costs costs = {0};
    *supported = true;
    GQAC_TRY(sandboxing_enter(c, NULL));
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_model(c, NULL, path, sizeof path));
    if (cli_switch(c, "verify")) {
        GQAC_TRY(gqac_artefact_verify(path, &c->diag));
        if (!cli_quiet(c))
            fprintf(stderr, "gqac: every checksum of %s is correct\n", cli_shown(path).s);
    }
    GQAC_TRY(gqac_info_open(path, &options, &info, &c->diag));
    *supported = !info->n_unsupported;
    const gqac_status status = print_info(c, info, &costs);
    inspect_costs_free(&costs);
    gqac_info_free(info);
    return status;
}

static int run(cli *c) {
    bool supported = true;
    gqac_status status = inspect(c, &supported);
    if (status == GQAC_OK && !supported)
        return gqac_status_exit_code(GQAC_UNSUPPORTED); /* stdout names the nodes */
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_inspect;
const gqac_cli_verb gqac_cli_verb_inspect = {
    .name = "inspect",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary =
        "shows ops, inputs, past/present pairs and all unsupported nodes (exit 3 if there are any)",
    .examples = "gqac inspect models/tiny-gqa --kv --invariance\n"
                "gqac inspect tiny.gqac --plan --memory 512\n"
                "gqac inspect model.onnx --ops --io --format json\n",
    .flags = flags,
    .run = run};
