/* KV blocks in the memory of a device: after any steps, forks, rewinds and failures the rows that a
 * kernel finds with the table are those of the host, on devices of any size; and only missing rows
 * are uploaded. The device is a fake in this file, and also an OpenCL device if there is one. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/program.h"
#include "runtime/sequence.h"
#include "targets/gpu/blocks.h"
#include "targets/gpu/gpu.h"

/* ---- a device ------------------------------------------------------------------ */

static size_t memory_left, writes;

static gqac_status allocate(gpu_queue *queue, size_t bytes, gpu_buffer *buffer, gqac_diag *diag) {
    (void)queue;
    if (bytes > memory_left)
        GQAC_FAIL(diag, GQAC_NO_MEMORY, "%zu bytes of %zu", bytes, memory_left);
    memory_left -= bytes;
    *buffer = (gpu_buffer){.handle = malloc(bytes), .bytes = bytes};
    CU_ASSERT_FATAL(buffer->handle != NULL);
    memset(buffer->handle, 0xA5, bytes);
    return GQAC_OK;
}

static void release(gpu_buffer *buffer) {
    memory_left += buffer->bytes;
    free(buffer->handle);
    *buffer = (gpu_buffer){0};
}

static bool write_fails;
static gqac_status write_bytes(gpu_queue *queue, const gpu_buffer *to, size_t at, const void *from,
                               size_t bytes, gqac_diag *diag) {
    (void)queue;
    CU_ASSERT_FATAL(to->handle && at <= to->bytes && bytes <= to->bytes - at);
    if (write_fails)
        GQAC_FAIL(diag, GQAC_INTERNAL, "a broken device");
    memcpy((unsigned char *)to->handle + at, from, bytes);
    writes++;
    return GQAC_OK;
}

static const gpu_driver driver = {
    .name = "test", .allocate = allocate, .release = release, .write = write_bytes};

/* ---- sequences ------------------------------------------------------------------- */

enum { SLOTS = 3, SEQUENCES = 5, MOST = 400, PER = MOST / GQAC_KV_BLOCK + 1, MOST_ROW = 2 * 5 * 4 };
static const kv_slot slots[SLOTS] = {
    {"past.0.key", "present.0.key", 2, 3, GQAC_F32, .columns = false},
    {"past.0.conv", "present.0.conv", 1, 7, GQAC_F32, .columns = false}, /* not on the device */
    {"past.0.value", "present.0.value", 2, 5, GQAC_F16, .columns = false},
};
static const int read_slots[] = {0, 2};

typedef struct fixture {
    kv_pool *pool;
    gpu_blocks *blocks;
    kv_sequence *all[SEQUENCES];
    uint64_t run; /* of the step */
    uint32_t table[SEQUENCES * PER];
} fixture;

static unsigned seed;
static unsigned any(unsigned n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static size_t head_bytes(int slot) {
    return (size_t)slots[slot].head_size * (size_t)gqac_dtype_bits(slots[slot].dtype) / 8;
}

static size_t row_bytes(int slot) {
    return (size_t)slots[slot].heads * head_bytes(slot);
}

/* A device with memory for this many blocks. */
static fixture open_fixture(size_t device_blocks) {
    fixture f = {0};
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(SLOTS, slots, &f.pool, NULL), GQAC_OK);
    f.blocks = gpu_blocks_open(&driver, NULL);
    CU_ASSERT_FATAL(f.blocks != NULL);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(
            gpu_blocks_add(f.blocks, read_slots[i], row_bytes(read_slots[i]), 0, NULL), GQAC_OK);
    for (int i = 0; i < SEQUENCES; i++)
        CU_ASSERT_EQUAL_FATAL(kv_sequence_create(f.pool, "contiguous", 0, &f.all[i], NULL),
                              GQAC_OK);
    memory_left = device_blocks * gpu_blocks_entry_bytes(f.blocks);
    return f;
}

static void close_fixture(fixture *f) {
    const size_t left = memory_left;
    for (int i = 0; i < SEQUENCES; i++)
        kv_sequence_free(f->all[i]);
    gpu_blocks_close(f->blocks);
    CU_ASSERT(memory_left >= left);
    kv_pool_free(f->pool);
}

/* The sequences of a step. */
typedef struct members {
    int n;
    kv_sequence *sequences[SEQUENCES];
    int64_t past[SEQUENCES], count[SEQUENCES], begin[SEQUENCES];
} members;

static kv_batch batch_of(const members *m) {
    return (kv_batch){.n = m->n,
                      .sequences = m->sequences,
                      .past = m->past,
                      .count = m->count,
                      .begin = m->begin};
}

static void add(members *m, kv_sequence *s, int64_t count) {
    m->sequences[m->n] = s;
    m->past[m->n] = kv_sequence_length(s);
    m->count[m->n++] = count;
}

/* Begins a step: reserves and writes new rows. */
static void write_rows(fixture *f, const members *m) {
    static unsigned char rows[MOST_ROW * MOST];
    f->run++;
    for (int i = 0; i < m->n; i++) {
        CU_ASSERT_EQUAL_FATAL(kv_sequence_reserve(m->sequences[i], m->past[i] + m->count[i], NULL),
                              GQAC_OK);
        for (int slot = 0; slot < SLOTS; slot++) {
            for (size_t j = 0; j < sizeof rows; j++)
                rows[j] = (unsigned char)any(256);
            kv_write_rows(m->sequences[i], slot, m->past[i], m->count[i], rows, m->count[i]);
        }
    }
}

/* The address, by the table, of a row of the i-th sequence of the step. */
static unsigned char *row_on_device(const fixture *f, int i, int64_t at, int slot) {
    const gpu_slabs slabs = gpu_blocks_slabs(f->blocks);
    const uint32_t entry = f->table[i * PER + at / GQAC_KV_BLOCK];
    const uint32_t slab = entry % GPU_SLABS, index = entry / GPU_SLABS;
    CU_ASSERT_FATAL(slabs.handles[slab] && (int64_t)index < slabs.entries[slab]);
    return (unsigned char *)slabs.handles[slab] + index * gpu_blocks_entry_bytes(f->blocks) +
           gpu_blocks_offset(f->blocks, slot) + (size_t)(at % GQAC_KV_BLOCK) * row_bytes(slot);
}

/* What a kernel does that writes the new rows of a slot; they equal those of the host. */
static gqac_status append(fixture *f, const members *m, int slot) {
    const kv_batch kv = batch_of(m);
    const gpu_table table = {.at = f->table, .per = PER};
    GQAC_TRY(gpu_blocks_place(f->blocks, &kv, f->run, &table, NULL));
    GQAC_TRY(gpu_blocks_fill(f->blocks, &kv, slot, false, NULL));
    for (int i = 0; i < m->n; i++)
        for (int64_t at = m->past[i]; at < m->past[i] + m->count[i]; at++)
            kv_read_rows(m->sequences[i], slot, at, 1, row_on_device(f, i, at, slot), 1);
    gpu_blocks_written(f->blocks, slot);
    CU_ASSERT_TRUE(gpu_blocks_has_new(f->blocks, slot));
    return GQAC_OK;
}

/* What a layer does before its kernel reads. */
static gqac_status bring(fixture *f, const members *m) {
    const kv_batch kv = batch_of(m);
    const gpu_table table = {.at = f->table, .per = PER};
    GQAC_TRY(gpu_blocks_place(f->blocks, &kv, f->run, &table, NULL));
    GQAC_TRY(gpu_blocks_fill(f->blocks, &kv, 0, true, NULL));
    return gpu_blocks_fill(f->blocks, &kv, 2, true, NULL);
}

static void publish(const members *m) {
    for (int i = 0; i < m->n; i++)
        kv_sequence_publish(m->sequences[i], m->past[i] + m->count[i]);
}

/* True if the device has all rows of the step, at the addresses in the table. */
static bool holds(const fixture *f, const members *m) {
    unsigned char row[MOST_ROW];
    bool same = true;
    for (int i = 0; i < m->n; i++)
        for (int64_t at = 0; at < m->past[i] + m->count[i]; at++)
            for (int k = 0; k < 2; k++) {
                const int slot = read_slots[k];
                kv_read_rows(m->sequences[i], slot, at, 1, row, 1);
                same = same && !memcmp(row, row_on_device(f, i, at, slot), row_bytes(slot));
            }
    return same;
}

static size_t blocks_of(const members *m) {
    size_t n = 0;
    for (int i = 0; i < m->n; i++)
        n += (size_t)(m->past[i] + m->count[i] + GQAC_KV_BLOCK - 1) / GQAC_KV_BLOCK;
    return n;
}

/* ---- any operations ---------------------------------------------------------------- */

static void disturb(fixture *f) {
    const int i = (int)any(SEQUENCES), j = (int)any(SEQUENCES);
    kv_sequence *s = f->all[i];
    const unsigned kind = any(8);
    if (kind < 3) {
        const int64_t length = any((unsigned)kv_sequence_length(s) + 1);
        CU_ASSERT_EQUAL(kv_sequence_rewind(s, kind ? length : length / 64 * 64, NULL), GQAC_OK);
    } else if (kind < 6 && i != j) {
        kv_sequence_free(f->all[j]);
        CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &f->all[j], NULL), GQAC_OK);
    }
}

/* Another thread runs a step of one sequence, between two kernels of this one. */
static void interrupt(fixture *f) {
    members m = {0};
    uint32_t at[PER];
    const gpu_table table = {.at = at, .per = PER};
    add(&m, f->all[any(SEQUENCES)], 0);
    const kv_batch kv = batch_of(&m);
    const gqac_status status = gpu_blocks_place(f->blocks, &kv, UINT64_MAX - f->run, &table, NULL);
    CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
}

/* A step; some steps fail before or after their rows have been copied to the device. */
static void step(fixture *f, size_t device_blocks) {
    members m = {0};
    for (int i = 0; i < SEQUENCES; i++) {
        const int64_t left = MOST - kv_sequence_length(f->all[i]);
        const int64_t count = any(3) ? 1 : any(150);
        if (any(2) && count <= left)
            add(&m, f->all[i], count);
    }
    const unsigned fate = any(8);
    write_rows(f, &m);
    write_fails = fate == 0;
    gqac_status status = GQAC_OK;
    for (int k = 0; status == GQAC_OK && k < 2; k++)
        status = any(2) ? append(f, &m, read_slots[k]) : GQAC_OK;
    if (any(20) == 0) /* memory is freed for others, between two kernels */
        gpu_blocks_drop(f->blocks);
    if (!write_fails && any(4) == 0)
        interrupt(f);
    if (status == GQAC_OK)
        status = bring(f, &m);
    write_fails = false;
    if (status == GQAC_NO_MEMORY)
        CU_ASSERT(blocks_of(&m) > device_blocks);
    if (status != GQAC_NO_MEMORY && fate > 0)
        CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    if (status == GQAC_OK) {
        CU_ASSERT_TRUE(holds(f, &m));
        CU_ASSERT_EQUAL(bring(f, &m), GQAC_OK); /* for the next layer */
        CU_ASSERT_TRUE(holds(f, &m));
    }
    if (status == GQAC_OK && fate > 1)
        publish(&m);
    else
        for (int i = 0; i < m.n; i++)
            CU_ASSERT_EQUAL(kv_sequence_rewind(m.sequences[i], m.past[i], NULL), GQAC_OK);
    if (any(50) == 0)
        gpu_blocks_drop(f->blocks);
}

static void any_operations(void) {
    const size_t sizes[] = {3, 9, 20, 1000};
    for (int run = unit_count(40, 1000); run > 0; run--)
        for (int i = 0; i < 4; i++) {
            fixture f = open_fixture(sizes[i]);
            seed = (unsigned)(run * 7919 + i);
            for (int round = 0; round < 60; round++) {
                disturb(&f);
                step(&f, sizes[i]);
            }
            close_fixture(&f);
        }
}

/* ---- what is uploaded ------------------------------------------------------------- */

/* The number of bytes uploaded by a step that appends `count` rows to a sequence. */
static uint64_t uploaded(fixture *f, kv_sequence *s, int64_t count) {
    const uint64_t before = gpu_blocks_uploaded(f->blocks);
    members m = {0};
    add(&m, s, count);
    write_rows(f, &m);
    CU_ASSERT_EQUAL(bring(f, &m), GQAC_OK);
    CU_ASSERT_TRUE(holds(f, &m));
    publish(&m);
    return gpu_blocks_uploaded(f->blocks) - before;
}

static void only_new_rows_are_uploaded(void) {
    fixture f = open_fixture(100);
    const uint64_t row = row_bytes(0) + row_bytes(2);
    kv_sequence *s = f.all[0];
    CU_ASSERT_EQUAL(uploaded(&f, s, 300), 300 * row);
    for (int i = 0; i < 30; i++) /* across the end of a block */
        CU_ASSERT_EQUAL(uploaded(&f, s, 1), row);
    writes = 0;
    CU_ASSERT_EQUAL(uploaded(&f, s, 1), row);
    CU_ASSERT_EQUAL(writes, 2); /* one for each slot, with all heads together */
    kv_sequence_free(f.all[1]);
    CU_ASSERT_EQUAL_FATAL(kv_sequence_fork(s, &f.all[1], NULL), GQAC_OK);
    CU_ASSERT_EQUAL(uploaded(&f, f.all[1], 1), (331 % 64 + 1) * row); /* a copy of the last block */
    CU_ASSERT_EQUAL(uploaded(&f, s, 1), row);
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 330, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(uploaded(&f, s, 1), row); /* the rows before are the same */
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 325, NULL), GQAC_OK);
    write_rows(&f, &(members){.n = 1, .sequences = {s}, .past = {325}, .count = {1}}); /* fails */
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 310, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(uploaded(&f, s, 1), (310 % 64 + 1) * row); /* two versions later */
    CU_ASSERT_EQUAL(kv_sequence_rewind(s, 256, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(uploaded(&f, s, 1), row);
    close_fixture(&f);
}

/* On a full device the least recently used blocks are replaced. */
static void oldest_blocks_are_replaced(void) {
    fixture f = open_fixture(6);
    const uint64_t row = row_bytes(0) + row_bytes(2);
    uploaded(&f, f.all[0], 128);
    uploaded(&f, f.all[1], 100);
    uploaded(&f, f.all[2], 100);
    uploaded(&f, f.all[0], 1); /* a third block replaces one of sequence 1 */
    CU_ASSERT_EQUAL(uploaded(&f, f.all[2], 1), row);
    CU_ASSERT_EQUAL(uploaded(&f, f.all[0], 1), row);
    CU_ASSERT(uploaded(&f, f.all[1], 1) > row);
    close_fixture(&f);
}

/* A step that does not fit fails, and leaves the blocks of others. */
static void a_step_that_is_too_large_fails(void) {
    fixture f = open_fixture(4);
    members m = {0};
    uploaded(&f, f.all[0], 10);
    add(&m, f.all[1], 300);
    write_rows(&f, &m);
    CU_ASSERT_EQUAL(bring(&f, &m), GQAC_NO_MEMORY);
    CU_ASSERT_EQUAL(kv_sequence_rewind(f.all[1], 0, NULL), GQAC_OK);
    uploaded(&f, f.all[0], 1);
    uploaded(&f, f.all[1], 3 * 64);
    CU_ASSERT_EQUAL(gpu_blocks_drop(f.blocks), true);
    CU_ASSERT_EQUAL(gpu_blocks_drop(f.blocks), false);
    CU_ASSERT_EQUAL(memory_left, 4 * gpu_blocks_entry_bytes(f.blocks));
    uploaded(&f, f.all[1], 1);
    close_fixture(&f);
}

#ifdef GQAC_TEST_ALLOC
static void short_memory_of_the_host(void) {
    for (size_t n = 1;; n++) {
        fixture f = open_fixture(100);
        members m = {0};
        add(&m, f.all[0], 300);
        write_rows(&f, &m);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = bring(&f, &m);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(bring(&f, &m), GQAC_OK);
        CU_ASSERT_TRUE(holds(&f, &m));
        close_fixture(&f);
        if (status == GQAC_OK)
            break;
        CU_ASSERT_FATAL(n < 100);
    }
}
#endif

/* ---- a model on a device ------------------------------------------------------------ */

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    gpu_blocks *blocks; /* of this kind of cache */
    const char *kind;
    int bits; /* of its codes */
    int64_t ids[300];
} rig;

/* Opens the rig for sequences of a kind; false: there is no device. */
static bool open_rig(rig *r, const char *kind) {
    gqac_options options;
    gqac_diag diag;
    gqac_options_init(&options);
    options.target = "gpu";
    const gqac_status status =
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &r->program, &diag);
    if (status == GQAC_ABSENT) {
        printf("  there is no device for target gpu\n");
        return false;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r->program, 1, &r->context, &diag), GQAC_OK);
    r->kind = kind;
    r->bits = strstr(kind, "quantised4") ? 4 : strstr(kind, "quantised") ? 8 : 0;
    r->blocks = gpu_state_blocks(r->program->target_state, r->bits);
    for (int i = 0; i < 300; i++)
        r->ids[i] = (i * 37 + 11) % 250;
    return true;
}

static void close_rig(rig *r) {
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static gqac_sequence *new_sequence(const rig *r) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = r->kind};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r->program, &options, &s, NULL), GQAC_OK);
    return s;
}

static void append_ids(const rig *r, gqac_sequence *s, int64_t count) {
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r->context, s, r->ids, count, 1, NULL), GQAC_OK);
}

/* Kernels write new rows, so none are uploaded except those of a block that a fork has copied, as
 * codes if the kind stores codes. */
static void decode_uploads_no_row_of(const char *kind) {
    rig r;
    const gqac_kv_pair *pairs = NULL;
    gqac_sequence *fork = NULL;
    uint64_t row = 0;
    if (!open_rig(&r, kind))
        return;
    for (int i = gqac_program_kv_pairs(r.program, &pairs) - 1; i >= 0; i--)
        row += (uint64_t)pairs[i].heads *
               (r.bits ? (uint64_t)kv_code_bytes(pairs[i].head_size, r.bits) + sizeof(float)
                       : (uint64_t)pairs[i].head_size * sizeof(float));
    gqac_sequence *s = new_sequence(&r);
    append_ids(&r, s, 300);
    for (int i = 0; i < 25; i++)
        append_ids(&r, s, 1);
    CU_ASSERT_EQUAL(gpu_blocks_uploaded(r.blocks), 0);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, NULL), GQAC_OK);
    append_ids(&r, fork, 1);
    CU_ASSERT_EQUAL(gpu_blocks_uploaded(r.blocks), 325 % 64 * row);
    gqac_sequence_free(fork);
    gqac_sequence_free(s);
    close_rig(&r);
}

static void decode_uploads_no_row(void) {
    decode_uploads_no_row_of("contiguous");
    decode_uploads_no_row_of("quantised");
    decode_uploads_no_row_of("quantised4");
}

static bool drop_blocks(void *arg) {
    gpu_blocks_drop(arg);
    return false;
}

/* Runs some steps; with `less`, the device loses its blocks after each kernel. *logits: those of
 * the last step. */
static gqac_sequence *any_steps(const rig *r, bool less, float *logits, int64_t vocabulary) {
    const gqac_monitor monitor = {
        .size = sizeof monitor, .abort = less ? drop_blocks : NULL, .arg = r->blocks};
    int64_t rows, n;
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r->context, &monitor, NULL, NULL), GQAC_OK);
    gqac_sequence *s = new_sequence(r);
    append_ids(r, s, 100);
    append_ids(r, s, 1);
    append_ids(r, s, 70);
    const float *last = gqac_context_logits(r->context, 0, &rows, &n);
    CU_ASSERT_FATAL(last && rows == 1 && n == vocabulary);
    memcpy(logits, last, (size_t)n * sizeof *logits);
    return s;
}

/* Rows that the device lost before the host had them are recovered. */
static void blocks_are_lost_in_a_step_of(const char *kind) {
    rig r;
    if (!open_rig(&r, kind))
        return;
    const int64_t n = gqac_program_vocabulary(r.program);
    float *wanted = malloc((size_t)n * sizeof *wanted), *got = malloc((size_t)n * sizeof *got);
    CU_ASSERT_FATAL(wanted && got);
    gqac_sequence *a = any_steps(&r, false, wanted, n), *b = any_steps(&r, true, got, n);
    CU_ASSERT_EQUAL(memcmp(got, wanted, (size_t)n * sizeof *got), 0);
    CU_ASSERT(gpu_blocks_uploaded(r.blocks) > 0);
    for (int slot = 0; kv_sequence_slot(a->kv, slot); slot++) {
        const kv_slot *of = kv_sequence_slot(a->kv, slot);
        float one[MOST], other[MOST];
        CU_ASSERT_FATAL(of->head_size <= MOST);
        for (int64_t i = 0; i < 171; i++) {
            kv_read_head(a->kv, slot, of->heads - 1, i, 1, one);
            kv_read_head(b->kv, slot, of->heads - 1, i, 1, other);
            CU_ASSERT_EQUAL(memcmp(one, other, (size_t)of->head_size * sizeof *one), 0);
            CU_ASSERT(one[0] == one[0]); /* it was written */
        }
    }
    gqac_sequence_free(a);
    gqac_sequence_free(b);
    free(wanted);
    free(got);
    close_rig(&r);
}

static void blocks_are_lost_in_a_step(void) {
    blocks_are_lost_in_a_step_of("contiguous");
    blocks_are_lost_in_a_step_of("quantised");
    blocks_are_lost_in_a_step_of("quantised4");
}

static const unit_case cases[] = {
    {"the rows of the host, after any operations", any_operations},
    {"only new rows are uploaded", only_new_rows_are_uploaded},
    {"the oldest blocks are replaced", oldest_blocks_are_replaced},
    {"a step that is too large fails", a_step_that_is_too_large_fails},
#ifdef GQAC_TEST_ALLOC
    {"short memory of the host", short_memory_of_the_host},
#endif
    {"a decode step uploads no row", decode_uploads_no_row},
    {"blocks are lost in a step", blocks_are_lost_in_a_step},
};

int main(int argc, char **argv) {
    return unit_run("targets/gpu_blocks", cases, sizeof cases / sizeof *cases, argc, argv);
}
