/* The conformance suite of KV sequences, run against every kind: random operations beside a plain
 * model that keeps a list of row tags a sequence and a reference count a block.
 *
 * A row's bytes are made from its tag, slot, head and element, so one tag for each position
 * determines what every slot must hold. Lengths cluster around multiples of the block. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/kv.h"
#include "unit.h"

static const char *const kinds[] = {"contiguous", "basic"};

static const kv_slot slots[] = {
    {"past.0.key", "present.0.key", 2, 3, GQAC_F32, .columns = false},
    {"past.0.value", "present.0.value", 1, 5, GQAC_F16, .columns = false},
    {"past.1.key", "present.1.key", 3, 1, GQAC_U8, .columns = false},
    {"past.1.value", "present.1.value", 2, 3, GQAC_F16, .columns = true},
};
enum { SLOTS = 4, MOST_ROW = 2 * 3 * 4, MOST = 400, SEQUENCES = 6, BLOCKS = MOST / 64 + 1 };

static unsigned seed;
static unsigned any(unsigned n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static size_t head_bytes(int slot) {
    return (size_t)slots[slot].head_size * (size_t)gqac_dtype_bits(slots[slot].dtype) / 8;
}

static unsigned char byte_of(unsigned tag, int slot, int64_t head, size_t i) {
    unsigned x = (tag * 2654435761u) ^ ((unsigned)slot * 97u + (unsigned)head * 31u + (unsigned)i);
    return (unsigned char)((x ^ (x >> 13)) * 0x9E3779B1u >> 24);
}

/* ---- writing and comparing rows through canonical memory ----------------- */

static void write_tags(kv_sequence *s, int64_t position, int64_t count, const unsigned *tags) {
    static unsigned char rows[MOST_ROW * (MOST + 3)];
    const int64_t stride = count + any(3);
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t bytes = head_bytes(slot);
        memset(rows, 0xEE, sizeof rows);
        for (int64_t h = 0; h < slots[slot].heads; h++)
            for (int64_t i = 0; i < count; i++)
                for (size_t b = 0; b < bytes; b++)
                    rows[(size_t)(h * stride + i) * bytes + b] = byte_of(tags[i], slot, h, b);
        kv_write_rows(s, slot, position, count, rows, stride);
    }
}

/* True if rows [position, position + count) hold those tags. Nothing else may be written by a
 * read. */
static bool holds_tags(const kv_sequence *s, int64_t position, int64_t count,
                       const unsigned *tags) {
    static unsigned char rows[MOST_ROW * (MOST + 3)];
    const int64_t stride = count + any(3);
    bool same = true;
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t bytes = head_bytes(slot);
        memset(rows, 0xEE, sizeof rows);
        kv_read_rows(s, slot, position, count, rows, stride);
        for (int64_t h = 0; h < slots[slot].heads; h++)
            for (int64_t i = 0; i < stride; i++)
                for (size_t b = 0; b < bytes; b++) {
                    unsigned char is = rows[(size_t)(h * stride + i) * bytes + b];
                    unsigned char want = i < count ? byte_of(tags[i], slot, h, b) : 0xEE;
                    same = same && is == want;
                }
    }
    return same;
}

static bool holds_byte(const kv_sequence *s, int64_t position, int64_t count, int byte) {
    static unsigned char rows[MOST_ROW * MOST];
    bool same = true;
    for (int slot = 0; slot < SLOTS; slot++) {
        const size_t n = head_bytes(slot) * (size_t)(slots[slot].heads * count);
        kv_read_rows(s, slot, position, count, rows, count);
        for (size_t i = 0; i < n; i++)
            same = same && rows[i] == byte;
    }
    return same;
}

static kv_pool *new_pool(void) {
    kv_pool *pool = NULL;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(SLOTS, slots, &pool, NULL), GQAC_OK);
    return pool;
}

static kv_sequence *new_sequence(kv_pool *pool, const char *kind, int64_t capacity) {
    kv_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(kv_sequence_create(pool, kind, capacity, &s, NULL), GQAC_OK);
    return s;
}

/* Appends rows with tags from + position. */
static gqac_status append(kv_sequence *s, int64_t count, unsigned from) {
    unsigned tags[MOST];
    const int64_t length = kv_sequence_length(s);
    GQAC_TRY(kv_sequence_reserve(s, length + count, NULL));
    for (int64_t i = 0; i < count; i++)
        tags[i] = from + (unsigned)(length + i);
    write_tags(s, length, count, tags);
    kv_sequence_publish(s, length + count);
    return GQAC_OK;
}

static bool holds_from(const kv_sequence *s, unsigned from) {
    unsigned tags[MOST];
    for (unsigned i = 0; i < MOST; i++)
        tags[i] = from + i;
    return holds_tags(s, 0, kv_sequence_length(s), tags);
}

/* ---- the model ----------------------------------------------------------- */

typedef struct model_block {
    int references;
} model_block;

typedef struct model {
    kv_sequence *real;
    int64_t length, capacity;
    unsigned tags[MOST];
    int n_blocks;
    model_block *blocks[BLOCKS];
} model;

static int live_blocks;

static model_block *block_create(void) {
    model_block *b = malloc(sizeof *b);
    CU_ASSERT_FATAL(b != NULL);
    b->references = 1;
    live_blocks++;
    return b;
}

static void block_release(model_block *b) {
    if (--b->references)
        return;
    live_blocks--;
    free(b);
}

static void model_shrink(model *m, int64_t length) {
    while (m->n_blocks > (length + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK)
        block_release(m->blocks[--m->n_blocks]);
}

static void model_reserve(model *m, int64_t total) {
    while (m->n_blocks * GQAC_KV_BLOCK < total)
        m->blocks[m->n_blocks++] = block_create();
    const int64_t first = m->length / GQAC_KV_BLOCK;
    if (total > m->length && m->blocks[first]->references > 1) {
        block_release(m->blocks[first]);
        m->blocks[first] = block_create();
    }
}

/* A count of tokens that often meets a block's edge. */
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

/* ---- copies of rows, as the memory of a device holds them ------------------ */

enum { NUMBERS = SEQUENCES * BLOCKS + 1 }; /* one more while a shared block is copied */
static struct {
    uint64_t version;
    int64_t rows;
    unsigned tags[GQAC_KV_BLOCK];
} copies[NUMBERS]; /* by number of a block */

/* Copies the rows of `total` tokens that the copies lack, whose tags are `tags`; then the copies
 * are right. */
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

/* One step: reserve, write, and unless it fails half-way, publish. */
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
    CU_ASSERT_TRUE(holds_tags(m->real, m->length, written, tags));
    memcpy(m->tags + m->length, tags, (size_t)count * sizeof *tags);
    check_copies(m->real, m->length + written, m->tags);
    if (fails)
        return;
    kv_sequence_publish(m->real, total);
    m->length = total;
}

static void do_rewind(model *m) {
    int64_t length = any((unsigned)m->length + 1);
    if (any(3) == 0)
        length = length / GQAC_KV_BLOCK * GQAC_KV_BLOCK;
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, m->length + 1, NULL), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, -1, NULL), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(kv_sequence_rewind(m->real, length, NULL), GQAC_OK);
    model_shrink(m, length);
    m->length = length;
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
        to->blocks[to->n_blocks] = from->blocks[to->n_blocks];
        to->blocks[to->n_blocks]->references++;
    }
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
    CU_ASSERT_TRUE(holds_tags(m->real, position, count, m->tags + position));
    check_copies(m->real, m->length, m->tags);
}

static void run_model(const char *kind, unsigned start, int steps) {
    static model all[SEQUENCES];
    kv_pool *pool = new_pool();
    seed = start;
    next_tag = 1;
    live_blocks = 0;
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
    }
    for (int i = 0; i < SEQUENCES; i++) {
        if (all[i].real) {
            CU_ASSERT_TRUE(holds_tags(all[i].real, 0, all[i].length, all[i].tags));
        }
        do_free(&all[i]);
    }
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
    kv_pool_free(pool);
}

static void random_operations_match_the_model(void) {
    const unsigned runs = unit_full() ? 2000 : 60;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (unsigned run = 0; run < runs; run++)
            run_model(kinds[k], run * 7919u + (unsigned)k, 80);
}

/* ---- single rules -------------------------------------------------------- */

static void pools_describe_themselves(void) {
    kv_pool *pool = new_pool();
    CU_ASSERT_EQUAL(kv_pool_slots(pool), SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        CU_ASSERT_EQUAL(kv_pool_slot(pool, i)->heads, slots[i].heads);
        CU_ASSERT_STRING_EQUAL(kv_pool_slot(pool, i)->past, slots[i].past);
    }
    CU_ASSERT(kv_pool_block_bytes(pool) >= 64 * (2 * 3 * 4 + 5 * 2 + 3));
    kv_pool_free(pool);
    kv_pool_free(NULL);
    CU_ASSERT_EQUAL(kv_pool_create(0, NULL, &pool, NULL), GQAC_OK); /* a model without a cache */
    kv_sequence *s = new_sequence(pool, "contiguous", 0);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 100, NULL), GQAC_OK);
    kv_sequence_publish(s, 100);
    kv_sequence_free(s);
    kv_sequence_free(NULL);
    kv_pool_free(pool);
}

static void nonsense_slots_are_refused(void) {
    static const kv_slot bad[] = {
        {"p", "q", 0, 8, GQAC_F32, .columns = false},
        {"p", "q", 8, -1, GQAC_F32, .columns = false},
        {"p", "q", 8, 8, GQAC_I4, .columns = false},
        {"p", "q", 8, 8, GQAC_TOKEN, .columns = false},
        {"p", "q", INT64_MAX, 8, GQAC_F32, .columns = false},
        {"p", "q", 1 << 20, 1 << 20, GQAC_F32, .columns = false},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kv_pool *pool = NULL;
        gqac_diag diag = {0};
        gqac_status status = kv_pool_create(1, &bad[i], &pool, &diag);
        CU_ASSERT(status == GQAC_UNSUPPORTED || status == GQAC_LIMIT);
        CU_ASSERT_PTR_NULL(pool);
        CU_ASSERT(strlen(diag.what) > 0);
    }
}

static void kinds_have_names(void) {
    kv_pool *pool = new_pool();
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        kv_sequence *s = new_sequence(pool, kinds[k], 0);
        CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), "contiguous");
        kv_sequence_free(s);
    }
    kv_sequence *s = new_sequence(pool, " \tbasic\n", 0);
    CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), "contiguous");
    kv_sequence_free(s);
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(kv_sequence_create(pool, "basic 2", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(kv_sequence_create(pool, " ", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(kv_sequence_create(pool, "heap", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "heap"));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.rule, "contiguous"));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.rule, "basic"));
    kv_pool_free(pool);
}

static void capacity_is_exact(void) {
    kv_pool *pool = new_pool();
    for (int64_t capacity = 63; capacity <= 65; capacity++) {
        kv_sequence *s = new_sequence(pool, "contiguous", capacity);
        CU_ASSERT_EQUAL(append(s, capacity - 1, 9), GQAC_OK);
        CU_ASSERT_EQUAL(append(s, 2, 9), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_length(s), capacity - 1);
        CU_ASSERT_EQUAL(append(s, 1, 9), GQAC_OK);
        CU_ASSERT_EQUAL(append(s, 1, 9), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_reserve(s, INT64_MAX, NULL), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_reserve(s, -1, NULL), GQAC_OUT_OF_RANGE);
        CU_ASSERT_TRUE(holds_from(s, 9));
        kv_sequence_free(s);
    }
    kv_sequence *s = new_sequence(pool, "contiguous", 0);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, INT64_MAX, NULL), GQAC_NO_MEMORY);
    CU_ASSERT_EQUAL(append(s, 70, 9), GQAC_OK);
    kv_sequence_free(s);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
    kv_pool_free(pool);
}

static void unwritten_rows_are_nan_bytes(void) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, "contiguous", 0), *fork = NULL;
    CU_ASSERT_EQUAL(append(s, 70, 1), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 200, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds_byte(s, 70, 130, 0xFF));
    /* a copy takes the published rows alone */
    CU_ASSERT_EQUAL(append(s, 10, 1), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_rewind(fork, 75, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_reserve(fork, 128, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds_byte(fork, 75, 53, 0xFF));
    CU_ASSERT(holds_from(fork, 1) && holds_from(s, 1));
#ifdef GQAC_POISON
    CU_ASSERT_EQUAL(kv_sequence_rewind(fork, 66, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_reserve(fork, 128, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds_byte(fork, 66, 62, 0xFF));
#endif
    kv_sequence_free(s);
    kv_sequence_free(fork);
    kv_pool_free(pool);
}

/* Appending keeps a block's version; writing a row again, after a rewind or a step that failed, and
 * copying a shared block do not. Numbers are those of blocks in use. */
static void rows_that_are_written_again_have_another_version(void) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, "contiguous", 0), *fork = NULL;
    append(s, 100, 1);
    const kv_block_id first = kv_block_identity(s, 63), last = kv_block_identity(s, 64);
    CU_ASSERT(first.version != last.version && first.number != last.number);
    append(s, 20, 1);
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).version, last.version);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 121, NULL), GQAC_OK); /* of a step that fails */
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).version, last.version);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 120, NULL), GQAC_OK);
    append(s, 1, 1);
    const uint64_t again = kv_block_identity(s, 119).version;
    CU_ASSERT_NOT_EQUAL(again, last.version);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 110, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_block_identity(s, 109).version, again); /* its rows are as they were */
    append(s, 1, 1);
    CU_ASSERT_NOT_EQUAL(kv_block_identity(s, 109).version, again);
    CU_ASSERT_EQUAL(kv_block_identity(s, 109).number, last.number);
    CU_ASSERT_EQUAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
    append(fork, 1, 1);
    CU_ASSERT_NOT_EQUAL(kv_block_identity(fork, 109).number, last.number);
    CU_ASSERT_EQUAL(kv_block_identity(fork, 0).version, first.version);
    kv_sequence_free(s);
    kv_sequence_free(fork);
    s = new_sequence(pool, "contiguous", 0);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 192, NULL), GQAC_OK);
    for (int64_t at = 0; at < 192; at += 64) {
        CU_ASSERT(kv_block_identity(s, at).number < 3); /* as many as there were at once */
        CU_ASSERT(kv_block_identity(s, at).version > again);
    }
    kv_sequence_free(s);
    kv_pool_free(pool);
}

static void forks_are_independent(void) {
    for (int64_t length = 0; length <= 130;
         length += length % 64 > 1 && length % 64 < 62 ? 60 : 1) {
        kv_pool *pool = new_pool();
        kv_sequence *a = new_sequence(pool, "contiguous", 0), *b = NULL;
        CU_ASSERT_EQUAL(append(a, length, 1), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(a, &b, NULL), GQAC_OK);
        CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), (size_t)(length + 63) / 64);
        CU_ASSERT_EQUAL(append(b, 3, 1000), GQAC_OK);
        CU_ASSERT_EQUAL(append(a, 70, 1), GQAC_OK);
        CU_ASSERT_TRUE(holds_from(a, 1));
        CU_ASSERT_EQUAL(kv_sequence_rewind(b, length, NULL), GQAC_OK);
        kv_sequence_free(a);
        CU_ASSERT_TRUE(holds_from(b, 1));
        kv_sequence_free(b);
        CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
        kv_pool_free(pool);
    }
}

enum { THREADS = 4, THREAD_SLOT = 2 };

typedef struct thread_job {
    kv_sequence *sequence;
    unsigned char mark;
    bool good;
} thread_job;

/* Grows and shortens its own fork; the shared rows hold 7, its own its mark. */
static void *grow_fork(void *arg) {
    thread_job *job = arg;
    unsigned char rows[3 * 200], back[3 * 200];
    job->good = true;
    memset(rows, job->mark, sizeof rows);
    for (int round = 0; round < 300; round++) {
        const int64_t length = kv_sequence_length(job->sequence), count = 1 + round % 90;
        job->good =
            job->good && kv_sequence_reserve(job->sequence, length + count, NULL) == GQAC_OK;
        kv_write_rows(job->sequence, THREAD_SLOT, length, count, rows, count);
        kv_sequence_publish(job->sequence, length + count);
        kv_read_rows(job->sequence, THREAD_SLOT, 0, length + count, back, 200);
        for (int64_t h = 0; h < 3; h++)
            for (int64_t i = 0; i < length + count; i++)
                job->good = job->good && back[h * 200 + i] == (i < 100 ? 7 : job->mark);
        job->good = job->good && kv_sequence_rewind(job->sequence, 100, NULL) == GQAC_OK;
    }
    kv_sequence_free(job->sequence);
    return NULL;
}

static void threads_share_a_pool(void) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, "contiguous", 0);
    unsigned char rows[3 * 100];
    memset(rows, 7, sizeof rows);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 100, NULL), GQAC_OK);
    kv_write_rows(s, THREAD_SLOT, 0, 100, rows, 100);
    kv_sequence_publish(s, 100);
    thread_job jobs[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (thread_job){.mark = (unsigned char)(20 + i)};
        CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &jobs[i].sequence, NULL), GQAC_OK);
    }
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, grow_fork, &jobs[i]), 0);
    kv_sequence_free(s);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT_TRUE(jobs[i].good);
    }
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
    kv_pool_free(pool);
}

#ifdef GQAC_TEST_ALLOC
/* Growing a forked sequence copies a block and makes three: each of those calls may fail. */
static void short_memory_changes_nothing(void) {
    const size_t live = gqac_alloc_live();
    kv_pool *pool = new_pool();
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK && n < 50; n++) {
        kv_sequence *a = new_sequence(pool, "contiguous", 0), *b = NULL;
        CU_ASSERT_EQUAL(append(a, 100, 1), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(a, &b, NULL), GQAC_OK);
        const size_t blocks = kv_pool_blocks_in_use(pool);
        gqac_alloc_fail_at(n, n % 2 == 0);
        status = kv_sequence_reserve(a, 300, NULL);
        gqac_alloc_fail_at(0, 0);
        if (status != GQAC_OK) {
            CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
            CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), blocks);
        }
        CU_ASSERT(kv_sequence_length(a) == 100 && holds_from(a, 1));
        CU_ASSERT_EQUAL(append(a, 200, 1), GQAC_OK);
        CU_ASSERT(holds_from(a, 1) && holds_from(b, 1));
        kv_sequence_free(a);
        kv_sequence_free(b);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
    kv_pool_free(pool);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}

static void short_memory_makes_nothing(void) {
    const size_t live = gqac_alloc_live();
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK && n < 50; n++) {
        kv_pool *pool = NULL;
        kv_sequence *a = NULL, *b = NULL;
        gqac_alloc_fail_at(n, 0);
        status = kv_pool_create(SLOTS, slots, &pool, NULL);
        if (status == GQAC_OK)
            status = kv_sequence_create(pool, "contiguous", 0, &a, NULL);
        if (status == GQAC_OK)
            status = append(a, 100, 1);
        if (status == GQAC_OK)
            status = kv_sequence_fork(a, &b, NULL);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        kv_sequence_free(b);
        kv_sequence_free(a);
        kv_pool_free(pool);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
}
#endif

static const unit_case cases[] = {
    {"random operations match the model", random_operations_match_the_model},
    {"pools describe themselves", pools_describe_themselves},
    {"nonsense slots are refused", nonsense_slots_are_refused},
    {"I10, I15: kinds have names, blanks around them aside", kinds_have_names},
    {"capacity is exact", capacity_is_exact},
    {"unwritten rows are NaN bytes", unwritten_rows_are_nan_bytes},
    {"rows that are written again have another version",
     rows_that_are_written_again_have_another_version},
    {"forks are independent", forks_are_independent},
    {"threads share a pool", threads_share_a_pool},
#ifdef GQAC_TEST_ALLOC
    {"short memory changes nothing", short_memory_changes_nothing},
    {"short memory makes nothing", short_memory_makes_nothing},
#endif
};

int main(int argc, char **argv) {
    return unit_run("kv/kv", cases, sizeof cases / sizeof cases[0], argc, argv);
}
