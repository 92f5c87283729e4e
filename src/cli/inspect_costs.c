/* What a token and a context cost: `gqac inspect --plan` and `--memory N`; and whether steps pad.
 */
#include <string.h>

#include "cli/inspect.h"

enum { MOST_TOKENS = 1 << 30, PROMPT_CHUNK = 512 };

/* Checked before the program is opened, because packing its weights may take long. */
static gqac_status check_tokens(cli *c, int64_t tokens) {
    const int64_t most = cli_most_tokens(c);
    if (tokens <= most)
        return GQAC_OK;
    if (most == c->limits.context)
        cli_fail(c, GQAC_OUT_OF_RANGE, "--memory %lld, but --limit context is %lld",
                 (long long)tokens, (long long)most);
    else
        cli_fail(c, GQAC_OUT_OF_RANGE,
                 "--memory %lld, but the tables of positions have rows for only %lld",
                 (long long)tokens, (long long)most);
    return cli_hint(c, "--memory %lld, or less", (long long)most);
}

static gqac_status open_program(cli *c, const gqac_info *info, inspect_costs *x) {
    char path[4096];
    gqac_options options;
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_model(c, &options, path, sizeof path));
    if (info->target) {
        options.target = info->target;
        options.math = info->math;
    }
    return gqac_program_open(path, &options, &x->program, &c->diag);
}

gqac_status inspect_costs_open(cli *c, const gqac_info *info, inspect_costs *x) {
    long long tokens = 0;
    const bool plan = cli_switch(c, "plan");
    const char *kv = cli_value(c, "kv");
    *x = (inspect_costs){.has_memory = cli_value(c, "memory") != NULL,
                         .kv = kv && *kv && !cli_kv_off(c) ? kv : NULL,
                         .memory = {.size = sizeof x->memory}};
    GQAC_TRY(cli_number(c, "memory", 1, MOST_TOKENS, 0, &tokens));
    x->tokens = tokens;
    const bool steps = cli_switch(c, "invariance") && info->n_kv_pairs;
    if (steps && !plan && !x->has_memory) {
        x->has_padding = open_program(c, info, x) == GQAC_OK; /* else the model has no steps */
        return x->has_padding ? gqac_program_rope_threshold(x->program, &x->threshold, &c->diag)
                              : GQAC_OK;
    }
    if (!plan && !x->has_memory)
        return GQAC_OK;
    if (x->has_memory)
        GQAC_TRY(check_tokens(c, tokens));
    GQAC_TRY(open_program(c, info, x));
    if (x->has_memory)
        GQAC_TRY(gqac_program_memory_of(x->program, x->kv, x->tokens,
                                        tokens < PROMPT_CHUNK ? tokens : PROMPT_CHUNK, &x->memory,
                                        &c->diag));
    if (plan)
        GQAC_TRY(gqac_plan_open(x->program, x->tokens, &x->plan, &c->diag));
    return GQAC_OK;
}

void inspect_costs_free(inspect_costs *x) {
    gqac_plan_free(x->plan);
    gqac_program_free(x->program);
}

/* ---- json ---------------------------------------------------------------- */

static void add_numbers(json_t *root, const gqac_plan_step *s) {
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"weight_bytes", s->weight_bytes},
                   {"cache_bytes", s->cache_bytes},
                   {"input_bytes", s->input_bytes},
                   {"output_bytes", s->output_bytes},
                   {"barriers", s->barriers}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(root, numbers[i].name, json_integer(numbers[i].value));
}

static json_t *plan_json(const gqac_plan *p) {
    json_t *steps = json_array(), *total = json_object();
    for (int i = 0; i < p->n_steps; i++) {
        const gqac_plan_step *s = &p->steps[i];
        json_t *fused = json_array();
        for (int k = 0; k < s->n_fused; k++)
            json_array_append_new(fused, cli_text_json(s->fused[k]));
        json_t *row = json_pack("{s:o, s:s, s:s, s:o, s:s, s:s}", "node", cli_text_json(s->node),
                                "op", s->op, "kernel", s->kernel, "fused", fused, "dtype",
                                gqac_dtype_name(s->dtype), "shape", s->shape);
        add_numbers(row, s);
        json_array_append_new(steps, row);
    }
    add_numbers(total, &p->total);
    return json_pack("{s:I, s:o, s:o}", "past", (json_int_t)p->past, "steps", steps, "total",
                     total);
}

void inspect_costs_json(const inspect_costs *x, json_t *root) {
    const gqac_memory *m = &x->memory;
    if (x->plan)
        json_object_set_new(root, "plan", plan_json(x->plan));
    const gqac_mixing *why = NULL;
    if (x->has_padding)
        json_object_set_new(root, "padded_by",
                            gqac_program_padding(x->program, &why)
                                ? json_pack("{s:s, s:o}", "op", why ? why->op : "", "node",
                                            cli_text_json(why && why->node ? why->node : ""))
                                : json_null());
    if (x->has_padding)
        json_object_set_new(root, "rope_threshold",
                            x->threshold ? json_integer(x->threshold) : json_null());
    if (!x->has_memory)
        return;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"tokens", x->tokens},
                   {"weights", m->weights},
                   {"kv", m->kv_blocks * m->kv_block + m->kv_windows * m->kv_window},
                   {"windows", m->kv_windows * m->kv_window},
                   {"states", m->kv_states * m->kv_state},
                   {"convolutions", m->kv_tails * m->kv_tail},
                   {"kv_blocks", m->kv_blocks},
                   {"kv_block_tokens", m->kv_block_tokens},
                   {"prefill", m->prefill},
                   {"decode", m->decode},
                   {"prefill_scratch", m->prefill_scratch},
                   {"decode_scratch", m->decode_scratch},
                   {"device_weights", m->device_weights},
                   {"device_kv", m->device_kv},
                   {"device_prefill", m->device_prefill},
                   {"device_decode", m->device_decode}};
    json_t *memory = json_object();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(memory, numbers[i].name, json_integer(numbers[i].value));
    json_object_set_new(root, "memory", memory);
}

/* ---- table --------------------------------------------------------------- */

static void print_plan(const gqac_plan *p) {
    printf("plan of one token after %lld\n", (long long)p->past);
    printf("  %-22s %-24s %12s %12s %12s %12s %8s\n", "kernel", "output", "weights", "cache",
           "inputs", "outputs", "barriers");
    for (int i = 0; i < p->n_steps; i++) {
        const gqac_plan_step *s = &p->steps[i];
        char output[96];
        snprintf(output, sizeof output, "%s%s", *s->shape ? gqac_dtype_name(s->dtype) : "",
                 s->shape);
        printf("  %-22s %-24s %12lld %12lld %12lld %12lld %8d  %s", s->kernel, cli_shown(output).s,
               (long long)s->weight_bytes, (long long)s->cache_bytes, (long long)s->input_bytes,
               (long long)s->output_bytes, s->barriers, s->op);
        for (int k = 0; k < s->n_fused; k++)
            printf(" + %s", s->fused[k]);
        printf("  %s\n", cli_shown(s->node).s);
    }
    const gqac_plan_step *t = &p->total;
    printf("  %d steps, %d nodes in them, bytes: %lld of weights, %lld of cache, %lld in, %lld "
           "out; %d barriers\n",
           p->n_steps, p->n_steps + t->n_fused, (long long)t->weight_bytes,
           (long long)t->cache_bytes, (long long)t->input_bytes, (long long)t->output_bytes,
           t->barriers);
}

static double mib(int64_t bytes) {
    return (double)bytes / 1048576;
}

/* Targets that do not count scratch report 0. */
static bool counts_scratch(const gqac_memory *m) {
    return m->prefill_scratch || m->decode_scratch;
}

static void print_scratch(const gqac_memory *m) {
    const int threads = gqac_threads_default();
    printf("  scratch, prompt       %12.2f MiB  with %d thread%s\n", mib(m->prefill_scratch),
           threads, threads > 1 ? "s" : "");
    printf("  scratch, decode       %12.2f MiB\n", mib(m->decode_scratch));
}

static void print_memory(const inspect_costs *x) {
    const gqac_memory *m = &x->memory;
    const int64_t windows = m->kv_windows * m->kv_window;
    const int64_t kv = m->kv_blocks * m->kv_block + windows, states = m->kv_states * m->kv_state;
    const int64_t tails = m->kv_tails * m->kv_tail;
    const int64_t prompt = m->prefill + m->prefill_scratch, one = m->decode + m->decode_scratch;
    printf("memory for %lld tokens%s%s\n", (long long)x->tokens, x->kv ? ", cache " : "",
           x->kv ? cli_shown(x->kv).s : "");
    printf("  weights               %12.2f MiB\n", mib(m->weights));
    printf("  keys and values       %12.2f MiB  %lld blocks of %lld tokens\n", mib(kv),
           (long long)m->kv_blocks, (long long)m->kv_block_tokens);
    if (windows)
        printf("    within windows      %12.2f MiB  in %lld blocks\n", mib(windows),
               (long long)m->kv_windows);
    if (states)
        printf("  recurrent states      %12.2f MiB  %lld of %.2f MiB\n", mib(states),
               (long long)m->kv_states, mib(m->kv_state));
    if (tails)
        printf("  convolution inputs    %12.2f MiB  in %lld blocks\n", mib(tails),
               (long long)m->kv_tails);
    printf("  activations, prompt   %12.2f MiB  in chunks of at most %d tokens\n", mib(m->prefill),
           PROMPT_CHUNK);
    printf("  activations, decode   %12.2f MiB\n", mib(m->decode));
    if (counts_scratch(m))
        print_scratch(m);
    printf("  total                 %12.2f MiB%s\n",
           mib(m->weights + kv + states + tails + (prompt > one ? prompt : one)),
           counts_scratch(m) ? "" : "  without kernel scratch");
}

static void print_device(const gqac_memory *m) {
    printf("on the device\n");
    printf("  weights               %12.2f MiB\n", mib(m->device_weights));
    printf("  keys and values       %12.2f MiB\n", mib(m->device_kv));
    printf("  activations, prompt   %12.2f MiB\n", mib(m->device_prefill));
    printf("  activations, decode   %12.2f MiB\n", mib(m->device_decode));
    printf("  total                 %12.2f MiB\n",
           mib(m->device_weights + m->device_kv +
               (m->device_prefill > m->device_decode ? m->device_prefill : m->device_decode)));
}

void inspect_costs_print(const inspect_costs *x) {
    const gqac_mixing *why = NULL;
    if (x->has_padding && gqac_program_padding(x->program, &why))
        printf("rows of a step: padded to the longest, because of node '%s' (%s)\n",
               cli_shown(why && why->node ? why->node : "").s, cli_shown(why ? why->op : "").s);
    else if (x->has_padding)
        printf("rows of a step: packed\n");
    if (x->threshold)
        printf("LongRoPE: sequences of more than %lld tokens use another rotary table; a sequence "
               "that grows beyond this length is computed again\n",
               (long long)x->threshold);
    if (x->has_memory)
        print_memory(x);
    if (x->has_memory && x->memory.device_weights)
        print_device(&x->memory);
    if (x->plan)
        print_plan(x->plan);
}
