/* Tiles, units and merges: see attend_units.h. */
#include "targets/gpu/attend_units.h"

#include "numerics/contract.h"

enum {
    ENOUGH = 1024,       /* groups that keep a device busy */
    MOST_PARTS = 1 << 26 /* floats of parts */
};

/* A tile, and the keys that its rows see together. */
typedef struct tile {
    int64_t sequence, query, first, rows, begin, end;
} tile;

static int64_t rows_of(const gpu_cut *c, int64_t b) {
    return attention_rows_of(c->rows, b) * c->group;
}

static gpu_tiles kind_of(const gpu_cut *c, int64_t b) {
    return rows_of(c, b) <= 2 * c->tile_rows[GPU_FEW] ? GPU_FEW : GPU_MANY;
}

static int64_t tiles_of(const gpu_cut *c, int64_t b) {
    const int64_t n = c->tile_rows[kind_of(c, b)];
    return (rows_of(c, b) + n - 1) / n;
}

/* Tile i of sequence b, whose first query is `query`. */
static tile tile_at(const gpu_cut *c, int64_t b, int64_t query, int64_t i) {
    const int64_t most = c->tile_rows[kind_of(c, b)];
    tile t = {.sequence = b, .query = query, .first = i * most, .rows = rows_of(c, b) - i * most};
    bool some = false;
    t.rows = t.rows < most ? t.rows : most;
    for (int64_t s = t.first / c->group; s <= (t.first + t.rows - 1) / c->group; s++) {
        const int64_t lo = c->lo[query + s], hi = c->hi[query + s];
        if (lo >= hi)
            continue;
        t.begin = some && t.begin < lo ? t.begin : lo;
        t.end = some && t.end > hi ? t.end : hi;
        some = true;
    }
    return t;
}

static int64_t splits_of(const tile *t) {
    return t->begin < t->end ? (t->end - 1) / GQAC_KEY_SPLIT - t->begin / GQAC_KEY_SPLIT + 1 : 0;
}

static int64_t all_tiles(const gpu_cut *c) {
    int64_t n = 0;
    for (int64_t b = 0; b < c->rows->n; b++)
        n += tiles_of(c, b);
    return n;
}

void gpu_cut_most(const gpu_cut *c, int64_t keys, int64_t *units, int64_t *merges) {
    const int64_t splits = (keys + GQAC_KEY_SPLIT - 1) / GQAC_KEY_SPLIT;
    *units = all_tiles(c) + ENOUGH;
    *merges = 0;
    for (int64_t b = 0; b < c->rows->n; b++) {
        *units += kind_of(c, b) == GPU_FEW ? tiles_of(c, b) * splits : 0;
        *merges += rows_of(c, b);
    }
}

/* The cutting of all tiles. */
typedef struct cutting {
    gpu_cut *c;
    int64_t splits, slots;  /* of all tiles */
    int64_t per[GPU_TILES]; /* maximum number of splits of a unit */
} cutting;

/* Calls `use` for all tiles of a kind; of each sequence those with the most keys come first. */
static void each_tile(cutting *k, int kind, void (*use)(cutting *, const tile *)) {
    const gpu_cut *c = k->c;
    for (int64_t b = 0, query = 0; b < c->rows->n; query += attention_rows_of(c->rows, b++))
        for (int64_t i = tiles_of(c, b); (int)kind_of(c, b) == kind && i-- > 0;) {
            const tile t = tile_at(c, b, query, i);
            use(k, &t);
        }
}

static void count(cutting *k, const tile *t) {
    k->splits += splits_of(t);
    k->slots += splits_of(t) * k->c->kv_heads * t->rows;
}

static void add_merges(gpu_cut *c, const tile *t) {
    for (int64_t r = 0; r < t->rows; r++)
        c->merges[c->n_merges++] =
            (gpu_merge){.query = (int32_t)(t->query + (t->first + r) / c->group),
                        .head = (int32_t)((t->first + r) % c->group),
                        .slot = (int32_t)(c->n_slots + r),
                        .rows = (int32_t)t->rows,
                        .split = (int32_t)(t->begin / GQAC_KEY_SPLIT),
                        .splits = (int32_t)splits_of(t)};
    c->n_slots += splits_of(t) * c->kv_heads * t->rows;
}

/* Adds the units of a tile. */
static void add(cutting *k, const tile *t) {
    gpu_cut *c = k->c;
    const gpu_tiles kind = kind_of(c, t->sequence);
    const int64_t splits = splits_of(t), first = t->begin / GQAC_KEY_SPLIT, per = k->per[kind];
    const bool whole = splits <= per;
    int64_t i = 0;
    do {
        const int64_t begin = (first + i) * GQAC_KEY_SPLIT;
        const int64_t end = whole ? t->end : begin + per * GQAC_KEY_SPLIT;
        c->units[c->n[GPU_FEW] + c->n[GPU_MANY]] =
            (gpu_unit){.query = (int32_t)t->query,
                       .first = (int32_t)t->first,
                       .rows = (int32_t)t->rows,
                       .sequence = (int32_t)t->sequence,
                       .begin = (int32_t)(begin > t->begin ? begin : t->begin),
                       .end = (int32_t)(end < t->end ? end : t->end),
                       .slot = whole ? -1 : (int32_t)(c->n_slots + i * c->kv_heads * t->rows)};
        c->n[kind]++;
        i += per;
    } while (i < splits);
    if (!whole)
        add_merges(c, t);
}

void gpu_cut_make(gpu_cut *c) {
    cutting k = {.c = c, .per = {1, INT32_MAX}};
    c->n[GPU_FEW] = c->n[GPU_MANY] = c->n_merges = c->n_slots = 0;
    for (int kind = 0; kind < GPU_TILES; kind++)
        each_tile(&k, kind, count);
    if (all_tiles(c) * c->kv_heads < ENOUGH && k.slots * c->part <= MOST_PARTS)
        k.per[GPU_MANY] = (k.splits * c->kv_heads + ENOUGH - 1) / ENOUGH;
    k.per[GPU_MANY] = k.per[GPU_MANY] > 0 ? k.per[GPU_MANY] : 1;
    for (int kind = 0; kind < GPU_TILES; kind++)
        each_tile(&k, kind, add);
}
