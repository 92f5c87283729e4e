/* The memory of a sequence of N tokens: weights, KV blocks, and the values of the plan, with their
 * symbols replaced: one sequence (B = 1), S new tokens, and N for every other length, which is that
 * of the keys wherever the compiler made the graph. */
#include "runtime/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sized.h"
#include "ops/attention.h"

typedef struct lengths {
    const ir_type *ids; /* of the token ids: [B,S] */
    memory_lengths are;
} lengths;

static bool look_up(void *arg, const char *symbol, int64_t *value) {
    const lengths *l = arg;
    const char *name;
    *value = l->are.tokens;
    if (ir_dim_is_symbol(l->ids->dims[0], &name) && !strcmp(name, symbol))
        *value = l->are.batch;
    else if (ir_dim_is_symbol(l->ids->dims[1], &name) && !strcmp(name, symbol))
        *value = l->are.chunk;
    else if (!strcmp(symbol, "gqac.logit_rows"))
        *value = l->are.logit_rows;
    else if (!strcmp(symbol, ATTENTION_SEQUENCES))
        *value = l->are.sequences;
    return true;
}

/* Bytes of a value; 0 for effect tokens and unknown types. False: overflow. */
static bool bytes_of(const ir_value *value, lengths *l, int64_t *bytes) {
    int64_t count = 1, dim;
    *bytes = 0;
    if (value->type.dtype == GQAC_NONE || value->type.dtype == GQAC_TOKEN || value->type.rank < 0)
        return true;
    for (int i = 0; i < value->type.rank; i++) {
        dim = l->are.tokens;
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

/* Places one value, unless its kernel makes no tensor of it. */
static bool put(const gqac_program *p, const ir_value *value, lengths *l, layout *all,
                int64_t *apart) {
    const ir_node *n = value->def;
    int64_t bytes;
    bool over;
    if ((n->fused_into && !ir_value_leaves(value)) ||
        (p->target->lies_in && p->target->lies_in(value)) ||
        (p->target->in_blocks && op_is(n, "gqac", "kv_append") && p->target->in_blocks(n)))
        return true;
    if (!bytes_of(value, l, &bytes))
        return false;
    if (value->slot < 0)
        return !apart || gqac_add_i64(*apart, bytes, apart);
    return bytes == 0 ||
           layout_put(all, value->slot, p->last[value->id], (size_t)bytes, &over) != NULL;
}

enum { GROUP_WINDOW = 4 * TARGET_MAX_FUSED }; /* nodes before a root that are searched */

/* Bytes of results that stay inside a group and lie in scratch of its kernel, as the products that
 * a chain of elementwise ops reads. False: overflow. */
static bool kept_inside(const gqac_program *p, const ir_node *root, lengths *l, int64_t *bytes) {
    const ir_node *n = p->target->in_scratch ? root->prev : NULL;
    *bytes = 0;
    for (int i = 0; n && i < GROUP_WINDOW; i++, n = n->prev) {
        int64_t more;
        if (n->fused_into != root || n->n_outputs != 1 || ir_value_leaves(n->outputs[0]) ||
            !p->target->in_scratch(n))
            continue;
        if (!bytes_of(n->outputs[0], l, &more) || !gqac_add_i64(*bytes, more, bytes))
            return false;
    }
    return true;
}

/* Nodes of a group follow each other where others read their results; the root is the last, and all
 * run with it. */
bool memory_lay_out(const gqac_program *p, const memory_lengths *lengths_, layout *all,
                    int64_t *apart) {
    lengths l = {.ids = &p->module->graph->inputs[p->roles.input_ids]->type, .are = *lengths_};
    layout_piece ended;
    int64_t inside, most = 0;
    if (apart)
        *apart = 0;
    for (const ir_node *n = p->module->graph->first; n; n = n->next) {
        for (int i = 0; i < n->n_outputs; i++)
            if (n->outputs[i] && !put(p, n->outputs[i], &l, all, apart))
                return false;
        while (!n->fused_into && layout_end(all, n, &ended))
            ;
        if (apart && !n->fused_into && !kept_inside(p, n, &l, &inside))
            return false;
        most = apart && !n->fused_into && inside > most ? inside : most;
    }
    return !apart || gqac_add_i64(*apart, most, apart);
}

/* Bytes of the arena and results of a call; *ok becomes false if they overflow. */
static gqac_status activations(const gqac_program *p, int64_t chunk, int64_t tokens, bool *ok,
                               int64_t *bytes, gqac_diag *diag) {
    const memory_lengths are = {
        .sequences = 1, .batch = 1, .chunk = chunk, .tokens = tokens, .logit_rows = 1};
    layout l = {.capacity = p->n_slots};
    l.live = gqac_calloc((size_t)p->n_slots + 1, sizeof *l.live);
    if (!l.live)
        return gqac_diag_oom(diag, "the plan");
    *ok = *ok && memory_lay_out(p, &are, &l, bytes) && l.most <= INT64_MAX &&
          gqac_add_i64(*bytes, (int64_t)l.most, bytes);
    gqac_free(l.live);
    return GQAC_OK;
}

gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                gqac_memory *result, gqac_diag *diag) {
    const gqac_program *p = program;
    if (p->stateless || !p->pool)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (tokens < 1 || chunk < 1 || chunk > tokens)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens in pieces of %lld", (long long)tokens,
                  (long long)chunk);
    if (tokens > p->most_tokens)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "%lld tokens, the tables of positions have rows for %lld", (long long)tokens,
                  (long long)p->most_tokens);
    gqac_memory memory = {.weights = gqac_program_weight_bytes(p),
                          .kv_block_tokens = GQAC_KV_BLOCK,
                          .kv_block = (int64_t)kv_pool_block_bytes(p->pool),
                          .kv_blocks = (tokens - 1) / GQAC_KV_BLOCK + 1,
                          .kv_state = (int64_t)kv_pool_state_bytes(p->pool)};
    if (memory.kv_state) /* and the state that the next step writes */
        memory.kv_states = kv_states_most(tokens) + 1;
    memory.kv_tail = (int64_t)kv_pool_tail_bytes(p->pool);
    if (memory.kv_tail)
        memory.kv_tails = kv_tails_most(p->pool, tokens);
    int64_t kv, states, tails;
    bool ok = gqac_mul_i64(memory.kv_blocks, memory.kv_block, &kv) &&
              gqac_mul_i64(memory.kv_states, memory.kv_state, &states) &&
              gqac_mul_i64(memory.kv_tails, memory.kv_tail, &tails) &&
              gqac_add_i64(kv, states, &kv) && gqac_add_i64(kv, tails, &kv);
    GQAC_TRY(activations(p, chunk, tokens, &ok, &memory.prefill, diag));
    GQAC_TRY(activations(p, 1, tokens, &ok, &memory.decode, diag));
    if (!ok)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens need more memory than can be counted",
                  (long long)tokens);
    return gqac_sized_give(result, &memory, sizeof memory, "gqac_memory", diag);
}
