/* Attention of the gpu target: checks operands, finds the visible keys of each query, cuts the
 * work, and launches kernels/attention.cl and attend_few.cl, or attend_tensor.cl and
 * attend_prompt.cl. */
#include "targets/gpu/attention.h"

#include <stdio.h>
#include <string.h>

#include "numerics/contract.h"
#include "ops/visible.h"
#include "targets/gpu/append.h"

/* attend_shape of kernels/attend_common.cl. */
typedef struct attend_shape {
    int32_t heads, kv_heads, queries, keys, size, value_size, bias_columns, has_sink, rows;
    int32_t units, merges, table;
    float scale, softcap;
    int32_t q_type, prompt;
    int64_t bias_step[3];
} attend_shape;
/* attend_blocks of kernels/attend_common.cl. */
typedef struct attend_blocks {
    int64_t per, entry_bytes, k_at, v_at, k_scales_at, v_scales_at;
    int32_t type, scale_step;
    int32_t entries[GPU_SLABS];
} attend_blocks;
_Static_assert(sizeof(attend_shape) == 88 && sizeof(attend_blocks) == 120,
               "the kernel has no padding either");
_Static_assert(GQAC_KV_BLOCK % GQAC_KEY_TILE == 0, "a tile lies in one block");
_Static_assert(sizeof(gpu_unit) == 28 && sizeof(gpu_merge) == 24, "lists of numbers");

enum {
    PART_HEAD = 4,            /* floats of a slot before the values */
    MOST_FACTORS = 256 << 20, /* bytes of the factors of a step */
    ROWS_SHARE = 2 /* factors are prepared if so many tiles of rows, on average, use them */
};

/* A tile of keys whose factors are prepared, as kernels/attend_prompt.cl reads it: of its keys the
 * range [from, to) is used. */
typedef struct key_tile {
    int32_t sequence, tile, from, to;
} key_tile;

typedef struct attending {
    const gpu_attention *record;
    const gqac_tensor *q, *k, *v, *bias, *sink;
    gqac_tensor decoded[2]; /* k and v of codes: type and shape alone */
    gqac_tensor y;
    attention_rows rows;
    attend_shape shape;
    attend_blocks blocks;
    int64_t n;       /* queries of all sequences */
    int32_t *lists;  /* [2][n]: first visible key, one after the last; the table, units, merges,
                        tiles of keys */
    size_t bytes;    /* of the lists */
    int32_t tiles;   /* where the tiles of keys begin in the lists */
    int64_t n_tiles; /* 0: no factors are prepared */
    size_t factors;  /* bytes */
    gpu_table table; /* of keys and values in blocks */
    gpu_kernel *kernels[GPU_OWN];
    gpu_cut cut;
} attending;

/* ---- the kernels --------------------------------------------------------------- */

static int64_t most_size(const gpu_attention *r) {
    return r->size > r->value_size ? r->size : r->value_size;
}

/* True if heads of this size are frequent enough to have kernels for their size and type. */
static bool is_frequent(const gpu_attention *r) {
    return r->in_blocks && r->size >= 64 && r->size % 16 == 0 && r->value_size == r->size;
}

/* True if these heads use the kernels for all models, which read sizes and types at run time. */
static bool is_common(const gpu_attention *r) {
    return !is_frequent(r) && most_size(r) <= GPU_ATTEND_COMMON;
}

bool gpu_attention_fits_tensor(const gpu_attention *r) {
    return r->size % 16 == 0 && r->value_size % 16 == 0;
}

/* The maximum size that kernels are compiled for. */
static int64_t compiled_size(const gpu_attention *r) {
    if (r->tensor)
        return most_size(r);
    return is_common(r) ? GPU_ATTEND_COMMON : is_frequent(r) ? r->size : GPU_ATTEND_SIZE;
}

int64_t gpu_attention_rows(const gpu_attention *r) {
    return compiled_size(r) > 128 ? GPU_ATTEND_MANY_ROWS / 2 /* registers for the sums */
                                  : GPU_ATTEND_MANY_ROWS;
}

/* True if tensor cores multiply factors that are prepared, where that is worth it. */
static bool has_prompt(const gpu_attention *r) {
    return r->tensor && gpu_attention_rows(r) == GPU_ATTEND_MANY_ROWS;
}

gqac_status gpu_attention_kernels(const void *state, const gpu_attention *r, gpu_rows_type type,
                                  gpu_kernel *kernels[GPU_OWN], gqac_diag *diag) {
    char own[64] = "", constants[192];
    if (r->tensor) {
        snprintf(constants, sizeof constants,
                 "#define ATTEND_SIZE %d\n#define ATTEND_VALUE_SIZE %d\n"
                 "#define ATTEND_MANY_ROWS %d\n#define ATTEND_TYPE %d\n"
                 "#define ATTEND_TENSOR_ITEMS %d\n",
                 (int)r->size, (int)r->value_size, (int)gpu_attention_rows(r), (int)type,
                 GPU_ATTEND_TENSOR_ITEMS);
        return gpu_own_kernels(state, has_prompt(r) ? GPU_PROMPT : GPU_TENSOR, constants, kernels,
                               diag);
    }
    if (is_common(r)) {
        gpu_common_kernels(state, kernels);
        return GQAC_OK;
    }
    if (is_frequent(r))
        snprintf(own, sizeof own, "#define ATTEND_TYPE %d\n", (int)type);
    snprintf(constants, sizeof constants, "#define ATTEND_SIZE %d\n#define ATTEND_MANY_ROWS %d\n%s",
             (int)compiled_size(r), (int)gpu_attention_rows(r), own);
    return gpu_own_kernels(state, GPU_PLAIN, constants, kernels, diag);
}

/* ---- operands ------------------------------------------------------------------ */

/* A bias that broadcasts to [B,Hq,S,columns]. */
static gqac_status set_bias(const target_call *call, attending *t) {
    const gqac_tensor *bias = t->bias;
    if (!bias)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, bias, "bias", 4));
    const int64_t scores[4] = {t->q->dims[0], t->q->dims[1], t->q->dims[2], t->k->dims[2]};
    int64_t step = bias->dims[3];
    bool fit = step >= 1 && step <= INT32_MAX;
    for (int axis = 2; axis >= 0; axis--) {
        fit = fit && (bias->dims[axis] == 1 || bias->dims[axis] == scores[axis]);
        t->shape.bias_step[axis] = bias->dims[axis] == 1 ? 0 : step;
        step *= bias->dims[axis];
    }
    t->shape.bias_columns = (int32_t)bias->dims[3];
    return fit ? GQAC_OK : op_misfit(&call->work, "bias", bias, scores);
}

static gqac_status set_sink(const target_call *call, attending *t) {
    if (!t->sink)
        return GQAC_OK;
    GQAC_TRY(op_floats(&call->work, t->sink, "sink", 1));
    if (t->sink->dims[0] != t->q->dims[1])
        OP_STOP(&call->work, GQAC_INVALID_INPUT, "there are %lld sinks for %lld heads",
                (long long)t->sink->dims[0], (long long)t->q->dims[1]);
    t->shape.has_sink = 1;
    return GQAC_OK;
}

/* Keys or values of codes as the fp32 rows that attention reads. */
static gqac_status open_codes(const target_call *call, const gqac_tensor *codes,
                              const gpu_operand *scale, bool per_channel, int64_t size,
                              gqac_tensor *rows) {
    const bool nibbles = codes->dtype == GQAC_U8;
    const float *scales;
    if (codes->rank != 4 || codes->dims[3] != (nibbles ? (size + 1) / 2 : size))
        OP_STOP(&call->work, GQAC_INVALID_INPUT,
                "the width of the codes does not fit %lld elements", (long long)size);
    *rows = *codes;
    rows->dtype = GQAC_F32;
    rows->dims[3] = size;
    return op_code_scales(&call->work, target_value(call, scale->value), per_channel,
                          codes->dims[1], size, &scales);
}

/* Sets k and v. */
static gqac_status open_stored(const target_call *call, attending *t) {
    const gpu_attention *r = t->record;
    t->k = target_value(call, r->k);
    t->v = target_value(call, r->v);
    if (!r->in_blocks || r->type < GPU_ROWS_I8)
        return GQAC_OK;
    GQAC_TRY(open_codes(call, t->k, &r->k_scale, r->per_channel, r->size, &t->decoded[0]));
    GQAC_TRY(open_codes(call, t->v, &r->v_scale, r->per_channel, r->value_size, &t->decoded[1]));
    t->k = &t->decoded[0];
    t->v = &t->decoded[1];
    return GQAC_OK;
}

static gqac_status open_operands(target_call *call, attending *t) {
    const gpu_attention *r = t->record;
    t->q = target_value(call, r->q);
    GQAC_TRY(open_stored(call, t));
    t->bias = target_value(call, r->bias.value);
    t->sink = target_value(call, r->sink.value);
    GQAC_TRY(op_floats(&call->work, t->q, "q", 4));
    GQAC_TRY(op_floats(&call->work, t->k, "k", 4));
    GQAC_TRY(op_floats(&call->work, t->v, "v", 4));
    t->n = t->q->dims[0] * t->q->dims[2];
    GQAC_TRY(op_rows_fit(&call->work, target_value(call, r->past_len),
                         target_value(call, r->new_len), t->q->dims[0], t->q->dims[2], &t->rows));
    GQAC_TRY(op_heads_fit(&call->work, t->rows.n, t->q, t->k, t->v, GPU_ATTEND_SIZE));
    if (t->q->dims[1] > INT32_MAX || t->k->dims[2] > INT32_MAX || t->n > INT32_MAX)
        OP_STOP(&call->work, GQAC_INVALID_INPUT,
                "%lld heads of %lld queries, %lld keys: one is not below 2^31",
                (long long)t->q->dims[1], (long long)t->n, (long long)t->k->dims[2]);
    t->shape = (attend_shape){.heads = (int32_t)t->q->dims[1],
                              .kv_heads = (int32_t)t->k->dims[1],
                              .queries = (int32_t)t->q->dims[2],
                              .keys = (int32_t)t->k->dims[2],
                              .size = (int32_t)t->q->dims[3],
                              .value_size = (int32_t)t->v->dims[3],
                              .rows = (int32_t)t->n,
                              .scale = r->scale,
                              .softcap = r->softcap,
                              .q_type = (int32_t)gpu_type_of(t->q->dtype)};
    GQAC_TRY(set_bias(call, t));
    GQAC_TRY(set_sink(call, t));
    t->y = (gqac_tensor){.dtype = t->v->dtype,
                         .rank = 3,
                         .dims = {t->q->dims[0], t->q->dims[2], t->q->dims[1] * t->v->dims[3]}};
    return target_give(call, r->y, &t->y);
}

/* Sizes the table of blocks. */
static gqac_status open_blocks(const target_call *call, attending *t) {
    const kv_batch *kv = call->kv;
    if (!t->record->in_blocks)
        return GQAC_OK;
    if (!kv || kv->n != t->rows.n)
        OP_STOP(&call->work, GQAC_INTERNAL,
                "attention over KV blocks can only run in a step of a sequence");
    t->table.per = (t->shape.keys + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    return GQAC_OK;
}

/* ---- lists --------------------------------------------------------------------- */

/* Sets the visible range of each query. */
static gqac_status list_rows(const target_call *call, attending *t) {
    int32_t *lo = t->lists, *hi = lo + t->n;
    op_visible(&t->rows, t->record->causal, t->record->window, lo, hi);
    for (int64_t b = 0, i = 0; b < t->rows.n; b++) {
        const int64_t keys =
            t->record->in_blocks ? call->kv->past[b] + call->kv->count[b] : t->shape.keys;
        for (int64_t s = 0; s < attention_rows_of(&t->rows, b); s++, i++) {
            const bool some = lo[i] < hi[i];
            if (some && (lo[i] < 0 || hi[i] > keys))
                OP_STOP(&call->work, GQAC_OUT_OF_RANGE,
                        "visible keys [%d,%d) of row %lld do not lie in the %lld keys", lo[i],
                        hi[i], (long long)i, (long long)keys);
            if (some && t->bias && hi[i] > t->shape.bias_columns)
                OP_STOP(&call->work, GQAC_INVALID_INPUT,
                        "the bias has %d columns, but keys up to %d are visible in sequence %lld",
                        t->shape.bias_columns, hi[i], (long long)b);
        }
    }
    return GQAC_OK;
}

/* Cuts the work; the lists end after the merges. */
static void list_units(attending *t, int32_t *at, int64_t most_units) {
    gpu_cut *cut = &t->cut;
    cut->lo = t->lists;
    cut->hi = t->lists + t->n;
    cut->units = (gpu_unit *)(void *)at;
    cut->merges = (gpu_merge *)(void *)(cut->units + most_units);
    gpu_cut_make(cut);
    gpu_merge *merges = (gpu_merge *)(void *)(cut->units + cut->n[GPU_FEW] + cut->n[GPU_MANY]);
    memmove(merges, cut->merges, (size_t)cut->n_merges * sizeof *merges);
    cut->merges = merges;
    t->shape.units = (int32_t)(at - t->lists);
    t->shape.merges = (int32_t)((int32_t *)(void *)merges - t->lists);
    t->bytes = (size_t)((char *)(merges + cut->n_merges) - (char *)t->lists);
}

/* The number of tiles of keys that have any of [begin, end). */
static int64_t key_tiles(int64_t begin, int64_t end) {
    return begin < end ? (end - 1) / GQAC_KEY_TILE - begin / GQAC_KEY_TILE + 1 : 0;
}

/* Adds the tiles of the keys [begin, end) of a sequence. */
static void add_tiles(attending *t, int32_t sequence, int32_t begin, int32_t end) {
    key_tile *tiles = (key_tile *)(void *)(t->lists + t->tiles);
    for (int32_t tile = begin / GQAC_KEY_TILE * GQAC_KEY_TILE; tile < end; tile += GQAC_KEY_TILE)
        tiles[t->n_tiles++] =
            (key_tile){.sequence = sequence,
                       .tile = tile,
                       .from = begin > tile ? begin - tile : 0,
                       .to = end - tile < GQAC_KEY_TILE ? end - tile : GQAC_KEY_TILE};
}

/* Lists the keys that tiles of many rows see, of each sequence; `used`: how many tiles of keys all
 * units read. */
static void list_key_tiles(attending *t, int64_t *used) {
    const gpu_unit *units = t->cut.units + t->cut.n[GPU_FEW];
    const int64_t n = t->cut.n[GPU_MANY];
    t->n_tiles = *used = 0;
    for (int64_t i = 0, last; i < n; i = last) {
        int32_t begin = INT32_MAX, end = 0;
        for (last = i; last < n && units[last].sequence == units[i].sequence; last++) {
            const gpu_unit *u = &units[last];
            begin = u->begin < u->end && u->begin < begin ? u->begin : begin;
            end = u->begin < u->end && u->end > end ? u->end : end;
            *used += key_tiles(u->begin, u->end);
        }
        if (begin < end)
            add_tiles(t, units[i].sequence, begin, end);
    }
}

/* Chooses whether factors are prepared; their tiles come after the merges in the lists. */
static void list_prompt(attending *t) {
    const int64_t all = (t->shape.keys + GQAC_KEY_TILE - 1) / GQAC_KEY_TILE;
    const int64_t eights = (t->shape.size + 31) / 32 * 4 + t->shape.value_size / 8; /* of a key */
    const int64_t bytes = t->rows.n * all * t->shape.kv_heads * eights * GQAC_KEY_TILE * 16;
    int64_t used;
    if (!has_prompt(t->record) || bytes > MOST_FACTORS)
        return;
    t->tiles = (int32_t)(t->bytes / sizeof *t->lists);
    list_key_tiles(t, &used);
    if (used < ROWS_SHARE * t->n_tiles)
        t->n_tiles = 0;
    if (t->n_tiles == 0)
        return;
    t->shape.prompt = (int32_t)all;
    t->factors = (size_t)bytes;
    t->bytes += (size_t)t->n_tiles * sizeof(key_tile);
}

/* Takes memory for the lists, and fills all but the table of blocks. */
static gqac_status open_lists(const target_call *call, attending *t, op_scratch *scratch) {
    const size_t ranges = 2 * (size_t)t->n, table = (size_t)(t->table.per * t->rows.n);
    int64_t units, merges;
    t->cut = (gpu_cut){.rows = &t->rows,
                       .group = t->shape.heads / t->shape.kv_heads,
                       .kv_heads = t->shape.kv_heads,
                       .tile_rows = {t->record->tensor ? GPU_ATTEND_WARP_ROWS : GPU_ATTEND_FEW_ROWS,
                                     t->record->many_rows},
                       .part = PART_HEAD + (t->shape.value_size + 3) / 4 * 4};
    gpu_cut_most(&t->cut, t->shape.keys, &units, &merges);
    const size_t tiles =
        has_prompt(t->record) ? (size_t)(t->rows.n * key_tiles(0, t->shape.keys)) : 0;
    const size_t most = ranges + table + (size_t)units * sizeof(gpu_unit) / sizeof *t->lists +
                        (size_t)merges * sizeof(gpu_merge) / sizeof *t->lists +
                        tiles * sizeof(key_tile) / sizeof *t->lists;
    if (most > INT32_MAX)
        OP_STOP(&call->work, GQAC_LIMIT,
                "%lld queries of %d heads are too many for the lists of target gpu",
                (long long)t->n, t->shape.heads);
    GQAC_TRY(op_work_scratch_one(&call->work, most, sizeof *t->lists, scratch));
    t->lists = (int32_t *)(void *)scratch->base;
    t->shape.table = (int32_t)ranges;
    t->table.at = (uint32_t *)t->lists + ranges;
    memset(t->table.at, 0, table * sizeof *t->table.at); /* shorter sequences leave entries out */
    const gqac_status status = list_rows(call, t);
    if (status != GQAC_OK) {
        op_scratch_close(scratch);
        return status;
    }
    list_units(t, t->lists + ranges + table, units);
    list_prompt(t);
    return GQAC_OK;
}

/* ---- launches ------------------------------------------------------------------ */

/* What the kernels read and write. The lists are not yet written. */
typedef struct operands {
    gpu_buffer q, k, v, lists, bias, sink, k_scale, v_scale, parts, factors, y;
    gpu_slabs slabs;
} operands;

static gpu_list lists_of(const attending *t) {
    return t->record->window > 0 ? GPU_LIST_WINDOW : GPU_LIST_ATTEND;
}

static gqac_status take_operands(gpu_work *w, const target_call *call, const attending *t,
                                 operands *o) {
    GQAC_TRY(gpu_in_as_is(w, t->q, &o->q));
    GQAC_TRY(gpu_list_take(w, lists_of(t), t->bytes, &o->lists));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->bias, &o->q, &o->bias));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->sink, &o->q, &o->sink));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->k_scale, &o->q, &o->k_scale));
    GQAC_TRY(gpu_operand_in(w, call, &t->record->v_scale, &o->q, &o->v_scale));
    GQAC_TRY(gpu_scratch(w, (size_t)(t->cut.n_slots * t->cut.part) * sizeof(float) + 1, &o->parts));
    return gpu_out(w, &t->y, &o->y);
}

/* Keys and values that are rows of their own. */
static gqac_status bring_rows(gpu_work *w, const attending *t, operands *o) {
    GQAC_TRY(gpu_in(w, t->k, &o->k));
    GQAC_TRY(gpu_in(w, t->v, &o->v));
    for (int i = 0; i < GPU_SLABS; i++)
        o->slabs.handles[i] = o->k.handle; /* not read */
    return GQAC_OK;
}

/* Places the blocks of the step, and uploads the rows that the device lacks. */
static gqac_status bring_blocks(gpu_work *w, const kv_batch *kv, attending *t, operands *o) {
    gpu_blocks *blocks = gpu_blocks_of(w->state, kv);
    const gpu_attention *r = t->record;
    const int bits = kv_sequence_code_bits(kv->sequences[0], r->k_slot);
    const gpu_rows_type type = bits == 8 ? GPU_ROWS_I8 : bits == 4 ? GPU_ROWS_U4 : r->type;
    if (bits)
        GQAC_TRY(gpu_attention_kernels(w->state, r, type, t->kernels, w->work->diag));
    GQAC_TRY(gpu_place(w, kv, &t->table));
    GQAC_TRY(gpu_bring_rows(w, kv, r->k_slot));
    GQAC_TRY(gpu_bring_rows(w, kv, r->v_slot));
    o->slabs = gpu_blocks_slabs(blocks);
    o->k.handle = o->v.handle = o->slabs.handles[0]; /* not read */
    t->blocks = (attend_blocks){.per = t->table.per,
                                .entry_bytes = (int64_t)gpu_blocks_entry_bytes(blocks),
                                .k_at = (int64_t)gpu_blocks_offset(blocks, r->k_slot),
                                .v_at = (int64_t)gpu_blocks_offset(blocks, r->v_slot),
                                .k_scales_at = (int64_t)gpu_blocks_scales_at(blocks, r->k_slot),
                                .v_scales_at = (int64_t)gpu_blocks_scales_at(blocks, r->v_slot),
                                .type = (int32_t)type,
                                .scale_step = r->per_channel};
    memcpy(t->blocks.entries, o->slabs.entries, sizeof t->blocks.entries);
    return GQAC_OK;
}

/* Launches a kernel of attention for groups [Hkv, n], whose list begins at `first`. */
static gqac_status start(gpu_work *w, const attending *t, const operands *o, gpu_kernel *kernel,
                         size_t items, int32_t first, int64_t n) {
    enum { SLABS = 3, AFTER = SLABS + GPU_SLABS, ALL = AFTER + 9 };
    attend_shape shape = t->shape;
    shape.units = first;
    const gpu_grid grid = {.groups = {(size_t)shape.kv_heads, (size_t)n}, .items = {items, 1}};
    const bool has_factors =
        kernel == t->kernels[GPU_OWN_PREPARE] || kernel == t->kernels[GPU_OWN_PROMPT];
    gpu_arg args[ALL + 1] = {[0] = GPU_ARG(o->q.handle),
                             GPU_ARG(o->k.handle),
                             GPU_ARG(o->v.handle),
                             [AFTER] = GPU_ARG(o->lists.handle),
                             GPU_ARG(o->bias.handle),
                             GPU_ARG(o->sink.handle),
                             GPU_ARG(o->k_scale.handle),
                             GPU_ARG(o->v_scale.handle),
                             GPU_ARG(o->parts.handle),
                             GPU_ARG(o->y.handle),
                             GPU_ARG(shape),
                             GPU_ARG(t->blocks),
                             [ALL] = GPU_ARG(o->factors.handle)};
    for (int i = 0; i < GPU_SLABS; i++)
        args[SLABS + i] = GPU_ARG(o->slabs.handles[i]);
    return gpu_launch_own(w, kernel, &grid, has_factors ? ALL + 1 : ALL, args);
}

/* Launches the units of one kind of tiles. */
static gqac_status attend(gpu_work *w, const attending *t, const operands *o, gpu_tiles kind) {
    static const size_t items[GPU_TILES] = {GPU_ATTEND_FEW_ITEMS, GPU_ATTEND_MANY_ITEMS};
    const bool prepared = kind == GPU_MANY && t->n_tiles > 0;
    int32_t first = t->shape.units;
    if (t->cut.n[kind] == 0)
        return GQAC_OK;
    if (kind == GPU_MANY)
        first += (int32_t)(t->cut.n[GPU_FEW] * (int64_t)(sizeof(gpu_unit) / sizeof(int32_t)));
    if (prepared)
        GQAC_TRY(start(w, t, o, t->kernels[GPU_OWN_PREPARE], GPU_ATTEND_TENSOR_ITEMS, t->tiles,
                       t->n_tiles));
    return start(w, t, o, t->kernels[prepared ? GPU_OWN_PROMPT : kind],
                 t->record->tensor ? GPU_ATTEND_TENSOR_ITEMS : items[kind], first, t->cut.n[kind]);
}

static gqac_status merge(gpu_work *w, const attending *t, const operands *o) {
    const gpu_grid grid = {.groups = {(size_t)t->shape.kv_heads, (size_t)t->cut.n_merges},
                           .items = {GPU_ATTEND_MERGERS, 1}};
    const gpu_arg args[] = {GPU_ARG(o->lists.handle), GPU_ARG(o->parts.handle),
                            GPU_ARG(o->sink.handle), GPU_ARG(o->y.handle), GPU_ARG(t->shape)};
    return t->cut.n_merges ? gpu_launch(w, GPU_ATTEND_MERGE, &grid, GPU_COUNT(args), args)
                           : GQAC_OK;
}

static gqac_status launch(gpu_work *w, const target_call *call, attending *t) {
    operands o;
    memcpy(t->kernels, t->record->kernels, sizeof t->kernels);
    GQAC_TRY(take_operands(w, call, t, &o));
    if (t->record->in_blocks)
        GQAC_TRY(bring_blocks(w, call->kv, t, &o));
    else
        GQAC_TRY(bring_rows(w, t, &o));
    if (t->n_tiles && !gpu_spare(w, t->factors, &o.factors))
        t->n_tiles = 0;
    GQAC_TRY(gpu_list_write(w, lists_of(t), t->lists, t->bytes));
    for (int kind = 0; kind < GPU_TILES; kind++)
        GQAC_TRY(attend(w, t, &o, (gpu_tiles)kind));
    GQAC_TRY(merge(w, t, &o));
    return gpu_done(w, &o.y, &t->y);
}

gqac_status gpu_attention_run(target_call *call, const void *record) {
    attending t = {.record = record};
    op_scratch scratch;
    GQAC_TRY(open_operands(call, &t));
    GQAC_TRY(open_blocks(call, &t));
    if (gqac_tensor_count(&t.y) == 0)
        return GQAC_OK;
    GQAC_TRY(open_lists(call, &t, &scratch));
    gpu_work w = gpu_take(call);
    const gqac_status status = launch(&w, call, &t);
    gpu_give_back(&w);
    op_scratch_close(&scratch);
    return status;
}
