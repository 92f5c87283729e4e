/* The conformance suite of KV sequences, run against every kind: random operations, compared with a
 * plain model that keeps a list of row tags for each sequence and a reference count for each block.
 * Lengths are often close to multiples of the block. test_kinds.c tests the rules one by one. */
#include <stdlib.h>
#include <string.h>

#include "kv/support_rows.h"
#include "unit.h"

enum { SEQUENCES = 6, BLOCKS = MOST / 64 + 1 };

/* ---- the model ----------------------------------------------------------- */

typedef struct model_block {
    int references;
} model_block;

typedef struct model {
    kv_sequence *real;
    int64_t length, capacity;
    unsigned tags[MOST];
    int64_t kept; /* the first row that is kept in slots with a window */
    int n_blocks;
    model_block *blocks[BLOCKS], *windows[BLOCKS]; /* windows: NULL, unless of kind windowed */
} model;

static int live_blocks, live_windows;

static model_block *block_create(int *live) {
    model_block *b = malloc(sizeof *b);
    CU_ASSERT_FATAL(b != NULL);
    b->references = 1;
    ++*live;
    return b;
}

/* Drops a reference; `live` counts blocks of that sort. */
static void release(model_block **at, int *live) {
    model_block *b = *at;
    *at = NULL;
    if (!b || --b->references)
        return;
    --*live;
    free(b);
}

static void model_shrink(model *m, int64_t length) {
    while (m->n_blocks > (length + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK) {
        m->n_blocks--;
        release(&m->blocks[m->n_blocks], &live_blocks);
        release(&m->windows[m->n_blocks], &live_windows);
    }
}

static void model_own(model_block **at, int *live) {
    if (!*at || (*at)->references == 1)
        return;
    release(at, live);
    *at = block_create(live);
}

static void model_reserve(model *m, int64_t total) {
    while (m->n_blocks * GQAC_KV_BLOCK < total) {
        if (is_kind(m->real, "windowed"))
            m->windows[m->n_blocks] = block_create(&live_windows);
        m->blocks[m->n_blocks++] = block_create(&live_blocks);
    }
    const int64_t first = m->length / GQAC_KV_BLOCK;
    if (total == m->length)
        return;
    model_own(&m->blocks[first], &live_blocks);
    model_own(&m->windows[first], &live_windows);
}

static void model_publish(model *m, int64_t total) {
    const int64_t kept = kept_from(m->real, total);
    m->length = total;
    for (; m->kept < kept; m->kept += GQAC_KV_BLOCK)
        release(&m->windows[m->kept / GQAC_KV_BLOCK], &live_windows);
}

/* A number of tokens that often ends at the edge of a block. */
static int64_t any_count(const model *m) {
    const int64_t to_edge = GQAC_KV_BLOCK - m->length % GQAC_KV_BLOCK;
    switch (any(4)) {
    case 0:
        return any(4);
    case 1:
        return to_edge + any(3) - 1;
    case 2:
        return to_edge + GQAC_KV_BLOCK * any(2) + any(3) - 1;
    default:
        return any(150);
    }
}

static unsigned next_tag;

/* ---- copies of rows, as in the memory of a device ------------------------ */

enum { NUMBERS = SEQUENCES * BLOCKS + 1 }; /* one extra while a shared block is copied */
static struct {
    uint64_t version;
    int64_t rows;
    unsigned tags[GQAC_KV_BLOCK];
} copies[NUMBERS]; /* indexed by the number of a block */

/* Copies the rows of `total` tokens that the copies lack, and checks that the tags of the copies
 * are then `tags`. */
static void check_copies(const kv_sequence *s, int64_t total, const unsigned *tags) {
    bool same = true;
    for (int64_t at = 0; at < total; at += GQAC_KV_BLOCK) {
        const kv_block_id id = kv_block_identity(s, at);
        const int64_t n = total - at < GQAC_KV_BLOCK ? total - at : GQAC_KV_BLOCK;
        CU_ASSERT_FATAL(id.number < NUMBERS && id.version > 0);
        if (copies[id.number].version != id.version)
            copies[id.number].rows = 0;
        copies[id.number].version = id.version;
        for (int64_t i = copies[id.number].rows; i < n; i++)
            copies[id.number].tags[i] = tags[at + i];
        copies[id.number].rows = n > copies[id.number].rows ? n : copies[id.number].rows;
        same = same && !memcmp(copies[id.number].tags, tags + at, (size_t)n * sizeof *tags);
    }
    CU_ASSERT_TRUE(same);
}

/* One step: reserve, write, and publish unless it fails half-way. */
static void do_step(model *m, bool fails) {
    const int64_t count = any_count(m), total = m->length + count;
    if (total > MOST)
        return;
    gqac_diag diag = {0};
    gqac_status status = kv_sequence_reserve(m->real, total, &diag);
    if (m->capacity && total > m->capacity) {
        CU_ASSERT_EQUAL(status, GQAC_CAPACITY);
        CU_ASSERT(strlen(diag.what) > 0 && strlen(diag.hint) > 0);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    model_reserve(m, total);
    unsigned tags[MOST];
    for (int64_t i = 0; i < count; i++)
        tags[i] = next_tag++;
    const int64_t written = fails ? any((unsigned)count + 1) : count;
    write_tags(m->real, m->length, written, tags);
    CU_ASSERT_TRUE(holds_tags(m->real, m->length, written, tags, m->kept));
    memcpy(m->tags + m->length, tags, (size_t)count * sizeof *tags);
    check_copies(m->real, m->length + written, m->tags);
    if (fails)
        return;
    kv_sequence_publish(m->real, total);
    model_publish(m, total);
}

static void do_rewind(model *m) {
    int64_t length = any((unsigned)m->length + 1);
    if (any(3) == 0)
        length = length / GQAC_KV_BLOCK * GQAC_KV_BLOCK;
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, m->length + 1, NULL), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, -1, NULL), GQAC_OUT_OF_RANGE);
    const bool reached = !length || !m->kept || length + 1 - WINDOW >= m->kept;
    CU_ASSERT(reached || m->length - length > KV_REACH);
    CU_ASSERT_EQUAL(kv_sequence_reach(m->real, length), reached ? length : 0);
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, length, NULL),
                    reached ? GQAC_OK : GQAC_OUT_OF_RANGE);
    if (!reached)
        return;
    model_shrink(m, length);
    m->length = length;
    m->kept = length ? m->kept : 0;
}

static void do_fork(const model *from, model *to) {
    if (to->real)
        return;
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(from->real, &to->real, NULL), GQAC_OK);
    kv_sequence *real = to->real;
    *to = *from;
    to->real = real;
    to->n_blocks = 0;
    for (; to->n_blocks * GQAC_KV_BLOCK < to->length; to->n_blocks++) {
        model_block *window = to->windows[to->n_blocks] = from->windows[to->n_blocks];
        to->blocks[to->n_blocks] = from->blocks[to->n_blocks];
        to->blocks[to->n_blocks]->references++;
        if (window)
            window->references++;
    }
    for (int i = to->n_blocks; i < BLOCKS; i++)
        to->windows[i] = NULL;
}

static void do_free(model *m) {
    kv_sequence_free(m->real);
    model_shrink(m, 0);
    *m = (model){0};
}

static void check(const model *m) {
    CU_ASSERT_EQUAL(kv_sequence_length(m->real), m->length);
    CU_ASSERT_EQUAL(kv_sequence_capacity(m->real), m->capacity);
    const int64_t position = any((unsigned)m->length + 1);
    const int64_t count = any((unsigned)(m->length - position) + 1);
    CU_ASSERT_TRUE(holds_tags(m->real, position, count, m->tags + position, m->kept));
    check_copies(m->real, m->length, m->tags);
}

static void run_model(const char *kind, unsigned start, int steps) {
    static model all[SEQUENCES];
    kv_pool *pool = new_pool();
    seed = start;
    next_tag = 1;
    live_blocks = live_windows = 0;
    memset(copies, 0, sizeof copies);
    for (int step = 0; step < steps; step++) {
        model *m = &all[any(SEQUENCES)];
        if (!m->real) {
            m->capacity = any(2) ? 0 : 1 + any(MOST);
            m->real = new_sequence(pool, kind, m->capacity);
        }
        const unsigned what = any(16);
        if (what < 8)
            do_step(m, what == 0);
        else if (what < 11)
            do_rewind(m);
        else if (what < 14)
            do_fork(m, &all[any(SEQUENCES)]);
        else if (what == 14)
            do_free(m);
        if (m->real)
            check(m);
        CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), (size_t)live_blocks);
        CU_ASSERT_EQUAL(kv_pool_windows_in_use(pool), (size_t)live_windows);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        if (all[i].real) {
            CU_ASSERT_TRUE(holds_tags(all[i].real, 0, all[i].length, all[i].tags, all[i].kept));
        }
        do_free(&all[i]);
    }
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
    kv_pool_free(pool);
}

static void random_operations_match_the_model(void) {
    const unsigned runs = unit_full() ? 2000 : 40;
    for (size_t k = 0; k < KINDS; k++)
        for (unsigned run = 0; run < runs; run++)
            run_model(kinds[k], run * 7919u + (unsigned)k, 80);
}

static const unit_case cases[] = {
    {"random operations match the model", random_operations_match_the_model},
};

int main(int argc, char **argv) {
    return unit_run("kv/kv", cases, sizeof cases / sizeof cases[0], argc, argv);
}
