/* What a sequence of N tokens needs: weights, KV blocks, and the buffers of the plan with their
 * symbols replaced: one sequence (B = 1), S new tokens, and N for every other length, which is that
 * of the keys wherever the graph is ours. */
#include "base/check.h"
#include "ops/rotary.h"
#include "runtime/program.h"

#include <string.h>

typedef struct lengths {
    const ir_type *ids; /* of the token ids: [B,S] */
    int64_t chunk, tokens;
} lengths;

static bool look_up(void *arg, const char *symbol, int64_t *value) {
    const lengths *l = arg;
    const char *name;
    *value = l->tokens;
    if (ir_dim_is_symbol(l->ids->dims[0], &name) && !strcmp(name, symbol))
        *value = 1;
    else if (ir_dim_is_symbol(l->ids->dims[1], &name) && !strcmp(name, symbol))
        *value = l->chunk;
    else if (!strcmp(symbol, "gqac.logit_rows"))
        *value = 1;
    return true;
}

/* Bytes of a value; 0 for tokens and types that are not known. False when they overflow. */
static bool bytes_of(const ir_value *value, lengths *l, int64_t *bytes) {
    int64_t count = 1, dim;
    *bytes = 0;
    if (value->type.dtype == GQAC_NONE || value->type.dtype == GQAC_TOKEN || value->type.rank < 0)
        return true;
    for (int i = 0; i < value->type.rank; i++) {
        dim = l->tokens;
        if (value->type.dims[i] && !ir_dim_eval(value->type.dims[i], look_up, l, &dim))
            return false;
        if (!gqac_mul_i64(count, dim > 0 ? dim : 0, &count))
            return false;
    }
    const int64_t bits = gqac_dtype_bits(value->type.dtype);
    if (!gqac_mul_i64(count, bits, &count))
        return false;
    *bytes = (count + 7) / 8;
    return true;
}

/* Buffers are as large as the largest value they hold; values without one have their own. */
static bool activations(const gqac_program *p, lengths *l, int64_t *slots, int64_t *total) {
    memset(slots, 0, (size_t)p->n_slots * sizeof *slots);
    *total = 0;
    for (const ir_node *n = p->module->graph->first; n; n = n->next)
        for (int i = 0; i < n->n_outputs; i++) {
            const ir_value *value = n->outputs[i];
            int64_t bytes;
            if (!value || (n->fused_into && !ir_value_leaves(value)) ||
                (p->target->in_blocks && op_is(n, "gqac", "kv_append") && p->target->in_blocks(n)))
                continue;
            if (!bytes_of(value, l, &bytes))
                return false;
            if (value->slot >= 0)
                slots[value->slot] = bytes > slots[value->slot] ? bytes : slots[value->slot];
            else if (!gqac_add_i64(*total, bytes, total))
                return false;
        }
    for (int i = 0; i < p->n_slots; i++)
        if (!gqac_add_i64(*total, slots[i], total))
            return false;
    return true;
}

/* Tokens that the rotary tables of the model have rows for. Tables that an If picks do not tell. */
static int64_t most_tokens(const gqac_program *p) {
    int64_t most = INT64_MAX;
    for (const ir_node *n = p->module->graph->first; n; n = n->next) {
        const ir_value *cos = op_is(n, "gqac", "rotary") ? ir_node_input(n, ROTARY_COS) : NULL;
        const gqac_tensor *t = cos ? cos->constant : NULL;
        if (t && t->rank == 2 && t->dims[0] < most)
            most = t->dims[0];
    }
    return most;
}

gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                gqac_memory *memory, gqac_diag *diag) {
    const gqac_program *p = program;
    if (p->stateless || !p->pool)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (tokens < 1 || chunk < 1 || chunk > tokens)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens in pieces of %lld", (long long)tokens,
                  (long long)chunk);
    if (tokens > most_tokens(p))
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens, the rotary tables have %lld rows",
                  (long long)tokens, (long long)most_tokens(p));
    gqac_arena *arena = gqac_arena_create(0);
    int64_t *slots = arena ? GQAC_ARENA_ARRAY(arena, int64_t, (size_t)p->n_slots + 1) : NULL;
    if (!slots) {
        gqac_arena_free(arena);
        return gqac_diag_oom(diag, "the plan");
    }
    lengths l = {.ids = &p->module->graph->inputs[p->roles.input_ids]->type,
                 .chunk = chunk,
                 .tokens = tokens};
    *memory = (gqac_memory){.weights = gqac_program_weight_bytes(p),
                            .kv_block_tokens = GQAC_KV_BLOCK,
                            .kv_block = (int64_t)kv_pool_block_bytes(p->pool),
                            .kv_blocks = (tokens - 1) / GQAC_KV_BLOCK + 1};
    bool ok = activations(p, &l, slots, &memory->prefill);
    l.chunk = 1;
    ok = ok && activations(p, &l, slots, &memory->decode);
    gqac_arena_free(arena);
    int64_t kv;
    if (!ok || !gqac_mul_i64(memory->kv_blocks, memory->kv_block, &kv))
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens need more memory than can be counted",
                  (long long)tokens);
    return GQAC_OK;
}
