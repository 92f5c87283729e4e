/* The rules of KV sequences, each tested for every kind. */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/codes.h"
#include "kv/support_rows.h"
#include "unit.h"

/* The operations of a cache interface, by their usual names: the functions that implement them
 * here, and their rules.
 * */
static void operations_of(const char *kind) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, kind, 0), *frozen = NULL;
    CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), kind); /* kind */
    CU_ASSERT_EQUAL(kv_pool_slots(pool), SLOTS);       /* num_layers */
    CU_ASSERT_EQUAL(kv_sequence_length(s), 0);         /* seq_len */
    /* set_prefill: the second call replaces the first */
    CU_ASSERT_EQUAL(append(s, 90, 5), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 0, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(append(s, 30, 1000), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_length(s), 30);
    CU_ASSERT_TRUE(holds_from(s, 1000));
    /* push_row adds one row and changes no other; append of several rows does the same */
    for (int64_t n = 31; n <= 70; n++) {
        CU_ASSERT_EQUAL(append(s, 1, 1000), GQAC_OK);
        CU_ASSERT_EQUAL(kv_sequence_length(s), n);
    }
    CU_ASSERT_TRUE(holds_from(s, 1000));
    CU_ASSERT_EQUAL(append(s, 59, 1000), GQAC_OK);
    CU_ASSERT_TRUE(holds_from(s, 1000));
    /* materialize makes a copy */
    unsigned char rows[3 * 129];
    kv_read_rows(s, THREAD_SLOT, 0, 129, rows, 129);
    memset(rows, 1, sizeof rows);
    CU_ASSERT_TRUE(holds_from(s, 1000));
    /* fork, used as a snapshot: it does not change */
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &frozen, NULL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(kv_sequence_kind(frozen), kind);
    CU_ASSERT_EQUAL(append(s, 90, 1000), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, kv_sequence_reach(s, 160), NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_length(s), 160);
    CU_ASSERT_EQUAL(append(s, 9, 1000), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_length(frozen), 129);
    CU_ASSERT_TRUE(holds_from(frozen, 1000));
    kv_sequence_free(s);
    CU_ASSERT_TRUE(holds_from(frozen, 1000));
    kv_sequence_free(frozen);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool) + kv_pool_windows_in_use(pool), 0);
    kv_pool_free(pool);
}
EVERY_KIND(operations)

/* The rows of windows in a windowed sequence take the same memory at any length. A rewind that
 * needs missing rows fails and loses nothing. */
static void windows_bound_memory(void) {
    enum { LONG = 10 * WINDOW };
    static const kv_slot one = {"k", "v", 2, 64, GQAC_F32, true, .window = WINDOW};
    static float rows[2 * 64 * LONG], back[2 * 64];
    kv_pool *pool = NULL;
    size_t shared, most = 0;
    gqac_diag diag = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rows[i] = (float)i;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(1, &one, &pool, NULL), GQAC_OK);
    kv_sequence *s = new_sequence(pool, "windowed", 0);
    const size_t block = 2 * 64 * 64 * sizeof(float);
    for (int64_t n = 1; n <= LONG; n++) {
        CU_ASSERT_EQUAL(kv_sequence_reserve(s, n, NULL), GQAC_OK);
        kv_write_rows(s, 0, n - 1, 1, rows + 64 * (n - 1), LONG);
        kv_sequence_publish(s, n);
        most = kv_sequence_bytes(s, &shared) > most ? kv_sequence_bytes(s, &shared) : most;
        CU_ASSERT((int64_t)kv_pool_windows_in_use(pool) <= kv_windows_most(pool, n));
    }
    /* window and reach, plus partial blocks at both ends */
    CU_ASSERT(most <= 4 * block && most >= 3 * block);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 300, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(kv_sequence_length(s), LONG);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, LONG - KV_REACH, NULL), GQAC_OK);
    for (int64_t at = LONG - KV_REACH + 1 - WINDOW; at < LONG - KV_REACH; at++) {
        kv_read_rows(s, 0, at, 1, back, 1);
        CU_ASSERT(!memcmp(back, rows + 64 * at, 64 * sizeof(float)));
        CU_ASSERT(!memcmp(back + 64, rows + 64 * (LONG + at), 64 * sizeof(float)));
    }
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 0, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_pool_windows_in_use(pool), 0);
    kv_sequence_free(s);
    kv_pool_free(pool);
}

static void pools_describe_themselves(void) {
    kv_pool *pool = new_pool();
    CU_ASSERT_EQUAL(kv_pool_slots(pool), SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        CU_ASSERT_EQUAL(kv_pool_slot(pool, i)->heads, slots[i].heads);
        CU_ASSERT_STRING_EQUAL(kv_pool_slot(pool, i)->past, slots[i].past);
    }
    const size_t parts[] = {2 * 3 * 4, 5 * 2, 3, 2 * 3 * 2, 66 * 2};
    const size_t codes[2][SLOTS] = {{6, 5, 0, 6, 66}, {4, 3, 0, 4, 33}}; /* of 8 bits, of 4 */
    for (int k = 0; k < KINDS; k++) {
        const kv_kind *kind = NULL;
        size_t row = 0;
        CU_ASSERT_EQUAL_FATAL(kv_pool_kind(pool, kinds[k], &kind, NULL), GQAC_OK);
        for (int i = 0; i < SLOTS; i++)
            if (bits_of(kinds[k]) && slots[i].coded)
                row += codes[bits_of(kinds[k]) == 4][i] + 4 * (size_t)slots[i].heads;
            else if (strcmp(kinds[k], "windowed") != 0 || !slots[i].window)
                row += parts[i];
        const size_t bytes = kv_pool_block_bytes(pool, kind);
        CU_ASSERT(bytes >= 64 * row && bytes <= 64 * (row + 2 * SLOTS));
        CU_ASSERT_EQUAL(kv_pool_window_bytes(pool, kind),
                        strcmp(kinds[k], "windowed") ? 0 : 64 * (5 * 2 + 66 * 2));
    }
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
    for (int k = 0; k < KINDS; k++) {
        kv_sequence *s = new_sequence(pool, kinds[k], 0);
        CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), kinds[k]);
        CU_ASSERT_STRING_EQUAL(kv_sequence_profile(s), k == 3 ? "/kv8" : k == 4 ? "/kv4" : "");
        kv_sequence_free(s);
    }
    kv_sequence *s = new_sequence(pool, " \tbasic\n", 0);
    CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), "contiguous");
    kv_sequence_free(s);
    s = new_sequence(pool, "int4", 0);
    CU_ASSERT_STRING_EQUAL(kv_sequence_kind(s), "quantised4");
    kv_sequence_free(s);
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(kv_sequence_create(pool, "basic 2", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(kv_sequence_create(pool, " ", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(kv_sequence_create(pool, "heap", 0, &s, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "heap"));
    for (int k = 0; k < KINDS; k++)
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.rule, kinds[k]));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.rule, "basic"));
    kv_pool_free(pool);
    /* only floats have codes */
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(1, &slots[THREAD_SLOT], &pool, NULL), GQAC_OK);
    for (int k = 3; k < KINDS; k++) {
        CU_ASSERT_EQUAL(kv_sequence_create(pool, kinds[k], 0, &s, &diag), GQAC_UNSUPPORTED);
        CU_ASSERT(strlen(diag.rule) > 0 && strlen(diag.hint) > 0);
    }
    kv_pool_free(pool);
}

/* A random float of the type, of any magnitude, as its bytes. */
static void any_number(gqac_dtype dtype, unsigned range, unsigned char *at) {
    const unsigned exponent = range + any(3), sign = any(2) << 15;
    const uint16_t half = (uint16_t)(sign | (exponent & 31) << 10 | any(1024));
    const uint16_t brain = (uint16_t)(sign | (exponent & 255) << 7 | any(128));
    const uint32_t single = (uint32_t)brain << 16 | any(65536);
    if (dtype == GQAC_F32)
        memcpy(at, &single, 4);
    else
        memcpy(at, dtype == GQAC_F16 ? &half : &brain, 2);
}

/* Rows that were read from codes are converted to the same codes again, whatever their
 * magnitude. */
static void codes_are_kept_of(const char *kind) {
    enum { SIZE = 7, ROWS = 60 };
    for (gqac_dtype dtype = GQAC_F32; bits_of(kind) && dtype <= GQAC_BF16; dtype++) {
        const kv_slot slot = {"k", "v", 1, SIZE, dtype, .coded = true};
        const size_t width = (size_t)gqac_dtype_bits(dtype) / 8;
        _Alignas(4) unsigned char rows[4 * SIZE * ROWS], once[sizeof rows], twice[sizeof rows];
        kv_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(kv_pool_create(1, &slot, &pool, NULL), GQAC_OK);
        kv_sequence *s = new_sequence(pool, kind, 0), *t = new_sequence(pool, kind, 0);
        const size_t codes = (size_t)kv_code_bytes(SIZE, bits_of(kind)) * ROWS;
        int differing = 0;
        for (unsigned range = 0; range < (dtype == GQAC_F16 ? 29 : 252); range++) {
            for (size_t i = 0; i < SIZE * ROWS; i++)
                any_number(dtype, range, rows + i * width);
            CU_ASSERT(kv_sequence_reserve(s, ROWS, NULL) == GQAC_OK &&
                      kv_sequence_reserve(t, ROWS, NULL) == GQAC_OK);
            kv_write_rows(s, 0, 0, ROWS, rows, ROWS);
            kv_read_rows(s, 0, 0, ROWS, once, ROWS);
            kv_write_rows(t, 0, 0, ROWS, once, ROWS);
            kv_read_rows(t, 0, 0, ROWS, twice, ROWS);
            differing += memcmp(once, twice, SIZE * ROWS * width) != 0 ||
                         memcmp(kv_block_memory(s, 0, 0), kv_block_memory(t, 0, 0), codes) != 0;
        }
        CU_ASSERT_EQUAL(differing, 0);
        kv_sequence_free(s);
        kv_sequence_free(t);
        kv_pool_free(pool);
    }
}
EVERY_KIND(codes_are_kept)

/* Copied codes and scales mean the same rows, in blocks with the same bytes. */
static void codes_are_copied_of(const char *kind) {
    enum { SIZE = 7, HEADS = 2, ROWS = 100, FIRST = 50 };
    const kv_slot slot = {"k", "v", HEADS, SIZE, GQAC_F16, .coded = true};
    uint16_t rows[HEADS * ROWS * SIZE], back[HEADS * ROWS * SIZE];
    unsigned char codes[ROWS * SIZE];
    float scales[ROWS];
    kv_pool *pool = NULL;
    if (!bits_of(kind))
        return;
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(1, &slot, &pool, NULL), GQAC_OK);
    kv_sequence *s = new_sequence(pool, kind, 0), *t = new_sequence(pool, kind, 0);
    CU_ASSERT_EQUAL(kv_sequence_kind_bits(s), bits_of(kind));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        any_number(GQAC_F16, 14, (unsigned char *)&rows[i]);
    CU_ASSERT(kv_sequence_reserve(s, ROWS, NULL) == GQAC_OK &&
              kv_sequence_reserve(t, ROWS, NULL) == GQAC_OK);
    kv_write_rows(s, 0, 0, ROWS, rows, ROWS);
    for (int64_t h = 0; h < HEADS; h++) {
        kv_read_codes(s, 0, h, 0, ROWS, codes, scales);
        kv_write_codes(t, 0, h, 0, FIRST, codes, scales);
        kv_write_codes(t, 0, h, FIRST, ROWS - FIRST,
                       codes + FIRST * kv_code_bytes(SIZE, bits_of(kind)), scales + FIRST);
    }
    kv_read_rows(s, 0, 0, ROWS, rows, ROWS);
    kv_read_rows(t, 0, 0, ROWS, back, ROWS);
    CU_ASSERT(!memcmp(back, rows, sizeof rows));
    CU_ASSERT(
        !memcmp(kv_block_memory(s, 0, 0), kv_block_memory(t, 0, 0),
                kv_slot_scales_at(&slot, bits_of(kind)) + HEADS * GQAC_KV_BLOCK * sizeof(float)));
    kv_sequence_free(s);
    kv_sequence_free(t);
    kv_pool_free(pool);
}
EVERY_KIND(codes_are_copied)

/* A row with an infinity or a NaN is read as NaN; the rows next to it are unchanged. */
static void codes_of_what_is_no_number_of(const char *kind) {
    enum { SIZE = 7, ROWS = 3 };
    static const uint16_t none[2][3] = {{0x7c00, 0xfc00, 0x7e01}, {0x7f80, 0xff80, 0x7fc1}};
    for (gqac_dtype dtype = GQAC_F32; bits_of(kind) && dtype <= GQAC_BF16; dtype++) {
        const kv_slot slot = {"k", "v", 1, SIZE, dtype, .coded = true};
        const size_t width = (size_t)gqac_dtype_bits(dtype) / 8, row = SIZE * width;
        _Alignas(4) unsigned char rows[4 * SIZE * ROWS], back[sizeof rows], alone[sizeof rows];
        unsigned char nan[4 * SIZE];
        kv_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(kv_pool_create(1, &slot, &pool, NULL), GQAC_OK);
        kv_sequence *s = new_sequence(pool, kind, 0);
        CU_ASSERT_EQUAL_FATAL(kv_sequence_reserve(s, ROWS, NULL), GQAC_OK);
        memset(nan, 0xFF, sizeof nan);
        for (size_t i = 0; i < SIZE * ROWS; i++)
            any_number(dtype, 14, rows + i * width);
        kv_write_rows(s, 0, 0, ROWS, rows, ROWS);
        kv_read_rows(s, 0, 0, ROWS, alone, ROWS);
        for (size_t i = 0; i < 3 * SIZE; i++) {
            const uint16_t half = none[dtype != GQAC_F16][i / SIZE];
            const uint32_t single = (uint32_t)half << 16;
            unsigned char *at = rows + row + i % SIZE * width, kept[4];
            memcpy(kept, at, width);
            memcpy(at, dtype == GQAC_F32 ? (const void *)&single : &half, width);
            kv_write_rows(s, 0, 0, ROWS, rows, ROWS);
            kv_read_rows(s, 0, 0, ROWS, back, ROWS);
            CU_ASSERT(!memcmp(back + row, nan, row));
            CU_ASSERT(!memcmp(back, alone, row) && !memcmp(back + 2 * row, alone + 2 * row, row));
            memcpy(at, kept, width);
        }
        kv_sequence_free(s);
        kv_pool_free(pool);
    }
}
EVERY_KIND(codes_of_what_is_no_number)

/* One infinity or NaN at a time, in a head of a slot whose keys are rows or columns. */
static void finite_rows_are_counted_of(const char *kind) {
    enum { SIZE = 5, HEADS = 2, ROWS = 130 };
    static const int bad[] = {ROWS, 129, 64, 63, 3, 0};
    static const uint16_t none[2][2] = {{0x7c00, 0xfe01}, {0xff80, 0x7fc1}};
    for (gqac_dtype dtype = GQAC_F32; dtype <= GQAC_BF16; dtype++) {
        const kv_slot slots[] = {{"k", "l", HEADS, SIZE, dtype, .coded = true},
                                 {"v", "w", HEADS, SIZE, dtype, true, .coded = true}};
        const size_t width = (size_t)gqac_dtype_bits(dtype) / 8;
        kv_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(kv_pool_create(2, slots, &pool, NULL), GQAC_OK);
        kv_sequence *s = new_sequence(pool, kind, 0);
        for (int i = 0; i < 24; i++) {
            _Alignas(4) unsigned char rows[4 * HEADS * ROWS * SIZE] = {0};
            const int at = bad[i / 4], place = (i & 1) * ROWS * SIZE + at * SIZE + i % SIZE;
            const uint16_t half = none[dtype != GQAC_F16][i / 2 % 2];
            const uint32_t single = (uint32_t)half << 16;
            CU_ASSERT_EQUAL_FATAL(kv_sequence_rewind(s, 0, NULL), GQAC_OK);
            CU_ASSERT_EQUAL_FATAL(kv_sequence_reserve(s, ROWS, NULL), GQAC_OK);
            kv_write_rows(s, i % 2, 0, ROWS, rows, ROWS);
            if (at < ROWS)
                memcpy(rows + (size_t)place * width,
                       dtype == GQAC_F32 ? (const void *)&single : &half, width);
            kv_write_rows(s, 1 - i % 2, 0, ROWS, rows, ROWS);
            kv_sequence_publish(s, ROWS);
            CU_ASSERT_EQUAL(kv_sequence_finite(s), at);
            CU_ASSERT_EQUAL_FATAL(kv_sequence_rewind(s, 70, NULL), GQAC_OK);
            CU_ASSERT_EQUAL(kv_sequence_finite(s), at < 70 ? at : 70);
        }
        kv_sequence_free(s);
        kv_pool_free(pool);
    }
}
EVERY_KIND(finite_rows_are_counted)

static void capacity_is_exact_of(const char *kind) {
    kv_pool *pool = new_pool();
    for (int64_t capacity = 63; capacity <= 65; capacity++) {
        kv_sequence *s = new_sequence(pool, kind, capacity);
        CU_ASSERT_EQUAL(append(s, capacity - 1, 9), GQAC_OK);
        CU_ASSERT_EQUAL(append(s, 2, 9), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_length(s), capacity - 1);
        CU_ASSERT_EQUAL(append(s, 1, 9), GQAC_OK);
        CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), capacity <= 64 ? 1 : 2);
        CU_ASSERT_EQUAL(append(s, 1, 9), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_reserve(s, INT64_MAX, NULL), GQAC_CAPACITY);
        CU_ASSERT_EQUAL(kv_sequence_reserve(s, -1, NULL), GQAC_OUT_OF_RANGE);
        CU_ASSERT_TRUE(holds_from(s, 9));
        kv_sequence_free(s);
    }
    kv_sequence *s = new_sequence(pool, kind, 0);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, INT64_MAX, NULL), GQAC_NO_MEMORY);
    CU_ASSERT_EQUAL(append(s, 70, 9), GQAC_OK);
    kv_sequence_free(s);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(pool), 0);
    kv_pool_free(pool);
}
EVERY_KIND(capacity_is_exact)

static void unwritten_rows_are_nan_bytes_of(const char *kind) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, kind, 0), *fork = NULL;
    CU_ASSERT_EQUAL(append(s, 70, 1), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 200, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds_byte(s, 70, 130, 0xFF));
    /* a copy has only the published rows */
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
EVERY_KIND(unwritten_rows_are_nan_bytes)

/* Appending keeps the version of a block; writing a row again, after a rewind or a failed step, and
 * copying a shared block change it. Numbers belong to blocks in use. */
static void rows_that_are_written_again_have_another_version_of(const char *kind) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, kind, 0), *fork = NULL;
    append(s, 100, 1);
    const kv_block_id first = kv_block_identity(s, 63), last = kv_block_identity(s, 64);
    CU_ASSERT(first.version != last.version && first.number != last.number);
    append(s, 20, 1);
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).version, last.version);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 121, NULL), GQAC_OK); /* for a step that fails */
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).version, last.version);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 120, NULL), GQAC_OK);
    append(s, 1, 1);
    const uint64_t again = kv_block_identity(s, 119).version;
    CU_ASSERT_NOT_EQUAL(again, last.version);
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).before, last.version);
    CU_ASSERT_EQUAL(kv_block_identity(s, 119).kept, 120 - 64);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 110, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_block_identity(s, 109).version, again); /* its rows are unchanged */
    append(s, 1, 1);
    CU_ASSERT_NOT_EQUAL(kv_block_identity(s, 109).version, again);
    CU_ASSERT_EQUAL(kv_block_identity(s, 109).number, last.number);
    CU_ASSERT_EQUAL(kv_sequence_fork(s, &fork, NULL), GQAC_OK);
    append(fork, 1, 1);
    CU_ASSERT_NOT_EQUAL(kv_block_identity(fork, 109).number, last.number);
    CU_ASSERT_EQUAL(kv_block_identity(fork, 0).version, first.version);
    kv_sequence_free(s);
    kv_sequence_free(fork);
    s = new_sequence(pool, kind, 0);
    CU_ASSERT_EQUAL(kv_sequence_reserve(s, 192, NULL), GQAC_OK);
    for (int64_t at = 0; at < 192; at += 64) {
        CU_ASSERT(kv_block_identity(s, at).number < 3); /* the maximum number at the same time */
        CU_ASSERT(kv_block_identity(s, at).version > again);
    }
    kv_sequence_free(s);
    kv_pool_free(pool);
}
EVERY_KIND(rows_that_are_written_again_have_another_version)

static void forks_are_independent_of(const char *kind) {
    for (int64_t length = 0; length <= 130;
         length += length % 64 > 1 && length % 64 < 62 ? 60 : 1) {
        kv_pool *pool = new_pool();
        kv_sequence *a = new_sequence(pool, kind, 0), *b = NULL;
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
EVERY_KIND(forks_are_independent)

/* Forks share the blocks before the first one that differs. Windowed forks share none once one of
 * them lacks rows of a window that the other has. */
static void forks_have_blocks_in_common_of(const char *kind) {
    kv_pool *pool = new_pool();
    kv_sequence *a = new_sequence(pool, kind, 0), *b = NULL, *other = new_sequence(pool, kind, 0);
    CU_ASSERT_EQUAL(append(a, 200, 1), GQAC_OK);
    CU_ASSERT_EQUAL(append(other, 200, 1), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(a, &b, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_common(a, b), 256);
    CU_ASSERT_EQUAL(append(b, 1, 1), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_common(a, b), 192);
    CU_ASSERT_EQUAL(append(b, 150, 1), GQAC_OK);
    CU_ASSERT_EQUAL(kv_sequence_common(a, b), is_kind(a, "windowed") ? 0 : 192);
    CU_ASSERT_EQUAL(kv_sequence_common(b, a), kv_sequence_common(a, b));
    CU_ASSERT_EQUAL(kv_sequence_common(a, other), 0);
    CU_ASSERT(holds_from(a, 1) && holds_from(b, 1));
    kv_sequence_free(other);
    kv_sequence_free(a);
    kv_sequence_free(b);
    kv_pool_free(pool);
}
EVERY_KIND(forks_have_blocks_in_common)

enum { THREADS = 4 };

typedef struct thread_job {
    kv_sequence *sequence;
    unsigned char mark;
    bool good;
} thread_job;

/* Grows and shortens its own fork; the shared rows have tag 7, its own rows its mark. */
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

static void threads_share_a_pool_of(const char *kind) {
    kv_pool *pool = new_pool();
    kv_sequence *s = new_sequence(pool, kind, 0);
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
EVERY_KIND(threads_share_a_pool)

#ifdef GQAC_TEST_ALLOC
/* Growing a forked sequence copies a block and creates three: each of these calls may fail. */
static void short_memory_changes_nothing_of(const char *kind) {
    const size_t live = gqac_alloc_live();
    kv_pool *pool = new_pool();
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK && n < 50; n++) {
        kv_sequence *a = new_sequence(pool, kind, 0), *b = NULL;
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
EVERY_KIND(short_memory_changes_nothing)

static void short_memory_makes_nothing_of(const char *kind) {
    const size_t live = gqac_alloc_live();
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK && n < 50; n++) {
        kv_pool *pool = NULL;
        kv_sequence *a = NULL, *b = NULL;
        gqac_alloc_fail_at(n, 0);
        status = kv_pool_create(SLOTS, slots, &pool, NULL);
        if (status == GQAC_OK)
            status = kv_sequence_create(pool, kind, 0, &a, NULL);
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
EVERY_KIND(short_memory_makes_nothing)
#endif

static const unit_case cases[] = {
    {"I5-I11: the operations of a cache", operations},
    {"windows bound the memory of a sequence", windows_bound_memory},
    {"pools describe themselves", pools_describe_themselves},
    {"nonsense slots are refused", nonsense_slots_are_refused},
    {"I10, I15: kinds have names, blanks around them aside", kinds_have_names},
    {"codes of rows that were read are the same codes", codes_are_kept},
    {"codes are copied as they are", codes_are_copied},
    {"codes of what is no number", codes_of_what_is_no_number},
    {"finite rows are counted", finite_rows_are_counted},
    {"capacity is exact", capacity_is_exact},
    {"unwritten rows are NaN bytes", unwritten_rows_are_nan_bytes},
    {"rows that are written again have another version",
     rows_that_are_written_again_have_another_version},
    {"forks are independent", forks_are_independent},
    {"forks have blocks in common", forks_have_blocks_in_common},
    {"threads share a pool", threads_share_a_pool},
#ifdef GQAC_TEST_ALLOC
    {"short memory changes nothing", short_memory_changes_nothing},
    {"short memory makes nothing", short_memory_makes_nothing},
#endif
};

int main(int argc, char **argv) {
    return unit_run("kv/kinds", cases, sizeof cases / sizeof cases[0], argc, argv);
}
