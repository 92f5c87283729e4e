/* The memory of a sequence of N tokens: weights, KV blocks, and the values of a run. Their sizes
 * follow from the types of the graph with one sequence (B = 1), S new tokens, and N for every other
 * symbol; in graphs that the compiler made, such a symbol is the number of keys. Kernels compute
 * from these shapes how much scratch they need. */
#include "runtime/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/sized.h"
#include "kv/codes.h"
#include "ops/attention.h"
#include "runtime/sequence.h"

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

/* Type and shape of a value; all zeros for effect tokens and unknown types. False: overflow. */
static bool shape_of(const ir_value *value, lengths *l, gqac_tensor *t) {
    const ir_type *type = &value->type;
    *t = (gqac_tensor){.dtype = GQAC_NONE};
    if (type->dtype == GQAC_NONE || type->dtype == GQAC_TOKEN || type->rank < 0)
        return true;
    t->dtype = type->dtype;
    t->rank = type->rank;
    for (int i = 0; i < type->rank; i++) {
        int64_t dim = l->are.tokens;
        if (type->dims[i] && !ir_dim_eval(type->dims[i], look_up, l, &dim))
            return false;
        t->dims[i] = dim > 0 ? dim : 0;
    }
    return true;
}

/* Bytes of a value; 0 for effect tokens and unknown types. False: overflow. */
static bool bytes_of(const ir_value *value, lengths *l, int64_t *bytes) {
    gqac_tensor t;
    int64_t count = 1;
    *bytes = 0;
    if (!shape_of(value, l, &t))
        return false;
    for (int i = 0; i < t.rank; i++)
        if (!gqac_mul_i64(count, t.dims[i], &count))
            return false;
    if (!gqac_mul_i64(count, gqac_dtype_bits(t.dtype), &count))
        return false;
    *bytes = t.dtype == GQAC_NONE ? 0 : (count + 7) / 8;
    return true;
}

static lengths lengths_of(const gqac_program *p, const memory_lengths *are) {
    return (lengths){.ids = &p->module->graph->inputs[p->roles.input_ids]->type, .are = *are};
}

/* The memory of a device. It has one copy for each address at which float values lie, as large as
 * the largest of them. */
typedef struct copies {
    struct {
        size_t at;
        int64_t bytes;
    } * list; /* as many as values */
    int n;
    int64_t bytes;
} copies;

static bool add_copy(copies *c, bool shared, size_t at, int64_t bytes) {
    int i = 0;
    while (i < c->n && !(shared && c->list[i].at == at))
        i++;
    if (i == c->n) {
        c->list[c->n].at = shared ? at : SIZE_MAX;
        c->list[c->n++].bytes = 0;
    }
    const int64_t more = bytes > c->list[i].bytes ? bytes - c->list[i].bytes : 0;
    c->list[i].bytes += more;
    return gqac_add_i64(c->bytes, more, &c->bytes);
}

/* Places one value, unless its kernel makes no tensor of it. */
static bool put(const gqac_program *p, const ir_value *value, lengths *l, layout *all,
                int64_t *apart, copies *on_device) {
    const ir_node *n = value->def;
    int64_t bytes;
    bool over;
    if ((n->fused_into && !ir_value_escapes(value)) ||
        (p->target->lies_in && p->target->lies_in(value)) ||
        (p->target->in_blocks && op_is(n, "gqac", "kv_append") && p->target->in_blocks(n)))
        return true;
    if (!bytes_of(value, l, &bytes))
        return false;
    const bool copied = on_device && bytes > 0 && OP_IN(OP_FLOATS, value->type.dtype);
    if (value->slot < 0)
        return (!copied || add_copy(on_device, false, 0, bytes)) &&
               (!apart || gqac_add_i64(*apart, bytes, apart));
    if (bytes == 0)
        return true;
    const layout_piece *piece =
        layout_put(all, value->slot, p->last[value->id], (size_t)bytes, &over);
    return piece && (!copied || add_copy(on_device, true, piece->at, bytes));
}

/* Results of a group that are read outside it are placed before its root runs: its nodes precede
 * the root, and all run with it. */
static bool lay_out(const gqac_program *p, const memory_lengths *are, layout *all, int64_t *apart,
                    copies *on_device) {
    lengths l = lengths_of(p, are);
    layout_piece ended;
    if (apart)
        *apart = 0;
    for (const ir_node *n = p->module->graph->first; n; n = n->next) {
        for (int i = 0; i < n->n_outputs; i++)
            if (n->outputs[i] && !put(p, n->outputs[i], &l, all, apart, on_device))
                return false;
        while (!n->fused_into && layout_end(all, n, &ended))
            ;
    }
    return true;
}

bool memory_lay_out(const gqac_program *p, const memory_lengths *are, layout *all, int64_t *apart) {
    return lay_out(p, are, all, apart, NULL);
}

/* ---- scratch --------------------------------------------------------------- */

/* The scratch of the kernel that takes the most, by the shapes in the call; false: overflow. */
static bool largest_scratch(const gqac_program *p, const target_call *call, int threads,
                            int64_t *bytes) {
    size_t most = 0;
    for (const ir_node *n = p->module->graph->first; n; n = n->next) {
        const target_kernel *kernel = n->claim;
        gqac_parts parts = {.base = NULL};
        if (n->fused_into || !kernel || !kernel->scratch ||
            kernel->scratch(call, threads, n->bound, &parts) != GQAC_OK)
            continue;
        if (parts.overflow)
            return false;
        most = parts.bytes > most ? parts.bytes : most;
    }
    *bytes = (int64_t)most;
    return most <= INT64_MAX;
}

gqac_status memory_scratch(const gqac_program *p, const memory_lengths *are, int threads, bool *ok,
                           int64_t *bytes, gqac_diag *diag) {
    lengths l = lengths_of(p, are);
    const int64_t past = are->tokens - are->chunk, zero = 0;
    const kv_batch kv = {.n = 1,
                         .packed = p->roles.packed,
                         .past = &past,
                         .count = &are->chunk,
                         .begin = &zero,
                         .common = &zero};
    gqac_diag misfit;
    *bytes = 0;
    gqac_tensor *values = gqac_calloc((size_t)p->n_values + 1, sizeof *values);
    if (!values)
        return gqac_diag_oom(diag, "shapes");
    for (int i = 0; i < p->n_values; i++) {
        const ir_value *value = p->values[i];
        int64_t unused;
        if (value && value->constant)
            values[i] = *value->constant;
        else if (value)
            *ok = *ok && shape_of(value, &l, &values[i]) && bytes_of(value, &l, &unused);
    }
    const target_call call = {
        .work = {.diag = &misfit}, .values = values, .state = p->target_state, .kv = &kv};
    *ok = *ok && largest_scratch(p, &call, threads, bytes);
    gqac_free(values);
    return GQAC_OK;
}

/* ---- a sequence ------------------------------------------------------------ */

/* Bytes of the arena and results of a call, of its scratch, and of its values on a device; *ok
 * becomes false if they overflow. */
static gqac_status activations(const gqac_program *p, int64_t chunk, int64_t tokens, bool *ok,
                               int64_t *bytes, int64_t *scratch, int64_t *device, gqac_diag *diag) {
    const memory_lengths are = {
        .sequences = 1, .batch = 1, .chunk = chunk, .tokens = tokens, .logit_rows = 1};
    GQAC_TRY(memory_scratch(p, &are, gqac_threads_default(), ok, scratch, diag));
    layout l = {.capacity = p->n_slots};
    copies on_device = {0};
    l.live = gqac_calloc((size_t)p->n_slots + 1, sizeof *l.live);
    if (p->target->mirror)
        on_device.list = gqac_calloc((size_t)p->n_values + 1, sizeof *on_device.list);
    const bool made = l.live && (on_device.list || !p->target->mirror);
    *ok = *ok && made && lay_out(p, &are, &l, bytes, on_device.list ? &on_device : NULL) &&
          l.most <= INT64_MAX && gqac_add_i64(*bytes, (int64_t)l.most, bytes);
    *device = on_device.bytes;
    gqac_free(l.live);
    gqac_free(on_device.list);
    return made ? GQAC_OK : gqac_diag_oom(diag, "the plan");
}

/* Adds the new rows of a call to *values, the bytes of its values on the device, and sets
 * device_weights and device_kv; false: a number overflows. */
static bool add_device(const gqac_program *p, const kv_kind *kind, int64_t chunk, int64_t *values,
                       gqac_memory *memory) {
    if (!p->target->device_memory)
        return true;
    const target_memory device = p->target->device_memory(p->target_state, kv_kind_bits(kind),
                                                          (size_t)memory->kv_blocks, (size_t)chunk);
    memory->device_weights = (int64_t)device.constants;
    memory->device_kv = (int64_t)device.kv;
    return device.constants <= INT64_MAX && device.kv <= INT64_MAX &&
           gqac_add_i64(*values, (int64_t)device.new_rows, values);
}

gqac_status gqac_program_memory(const gqac_program *program, int64_t tokens, int64_t chunk,
                                gqac_memory *result, gqac_diag *diag) {
    return gqac_program_memory_of(program, NULL, tokens, chunk, result, diag);
}

gqac_status gqac_program_memory_of(const gqac_program *program, const char *kv, int64_t tokens,
                                   int64_t chunk, gqac_memory *result, gqac_diag *diag) {
    const gqac_program *p = program;
    GQAC_TRY(sequence_check_program(p, diag));
    if (tokens < 1 || chunk < 1 || chunk > tokens)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "%lld tokens in chunks of %lld: must be 1 <= chunk <= tokens", (long long)tokens,
                  (long long)chunk);
    if (tokens > p->most_tokens && p->limited) {
        gqac_diag_set(diag, GQAC_OUT_OF_RANGE, "%lld tokens are too many", (long long)tokens);
        gqac_limits_explain(diag, "context", p->most_tokens);
        return GQAC_OUT_OF_RANGE;
    }
    if (tokens > p->most_tokens)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "%lld tokens exceed the %lld rows of the tables of positions", (long long)tokens,
                  (long long)p->most_tokens);
    const kv_kind *kind = NULL;
    GQAC_TRY(kv_pool_kind(p->pool, kv ? kv : "contiguous", &kind, diag));
    gqac_memory memory = {.weights = gqac_program_weight_bytes(p),
                          .kv_block_tokens = GQAC_KV_BLOCK,
                          .kv_block = (int64_t)kv_pool_block_bytes(p->pool, kind),
                          .kv_blocks = (tokens - 1) / GQAC_KV_BLOCK + 1,
                          .kv_state = (int64_t)kv_pool_state_bytes(p->pool)};
    if (memory.kv_state) /* and the state that the next step writes */
        memory.kv_states = kv_states_most(tokens) + 1;
    memory.kv_tail = (int64_t)kv_pool_tail_bytes(p->pool);
    if (memory.kv_tail)
        memory.kv_tails = kv_tails_most(p->pool, tokens);
    memory.kv_window = (int64_t)kv_pool_window_bytes(p->pool, kind);
    if (memory.kv_window)
        memory.kv_windows = kv_windows_most(p->pool, tokens);
    int64_t rows, states, tails, windows;
    bool ok = gqac_mul_i64(memory.kv_blocks, memory.kv_block, &rows) &&
              gqac_mul_i64(memory.kv_states, memory.kv_state, &states) &&
              gqac_mul_i64(memory.kv_tails, memory.kv_tail, &tails) &&
              gqac_mul_i64(memory.kv_windows, memory.kv_window, &windows) &&
              gqac_add_i64(rows, states, &rows) && gqac_add_i64(rows, tails, &rows) &&
              gqac_add_i64(rows, windows, &rows);
    GQAC_TRY(activations(p, chunk, tokens, &ok, &memory.prefill, &memory.prefill_scratch,
                         &memory.device_prefill, diag));
    GQAC_TRY(activations(p, 1, tokens, &ok, &memory.decode, &memory.decode_scratch,
                         &memory.device_decode, diag));
    ok = ok && add_device(p, kind, chunk, &memory.device_prefill, &memory) &&
         add_device(p, kind, 1, &memory.device_decode, &memory);
    if (!ok)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld tokens need more memory than can be counted",
                  (long long)tokens);
    return gqac_sized_give(result, &memory, sizeof memory, "gqac_memory", diag);
}
