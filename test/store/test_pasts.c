/* Prefixes as tensors: tensors from a lookup have the bits of those that were added, with any
 * capacity, and can be continued like a run that computed all tokens. */
#include "base/alloc.h"
#include "runtime/program.h"
#include "runtime/rig.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 8, N = 150, ROWS = 200 };

static gqac_diag diag;

/* All pasts of a model, with memory of their own. */
typedef struct pasts {
    int n;
    const char *names[MOST];
    gqac_tensor tensors[MOST];
} pasts;

/* Tensors of `rows` rows, filled with a byte. */
static pasts make(const gqac_program *p, int64_t rows, int byte) {
    const gqac_kv_pair *pairs;
    pasts made = {.n = gqac_program_kv_pairs(p, &pairs)};
    CU_ASSERT_FATAL(made.n > 0 && made.n <= MOST);
    for (int i = 0; i < made.n; i++) { /* by past or present, in another order */
        const gqac_kv_pair *pair = &pairs[made.n - 1 - i];
        gqac_tensor *t = &made.tensors[i];
        made.names[i] = i % 2 ? pair->past : pair->present;
        *t = (gqac_tensor){
            .dtype = pair->dtype, .rank = 4, .dims = {1, pair->heads, rows, pair->head_size}};
        t->data = malloc(gqac_tensor_bytes(t) + 1);
        memset(t->data, byte, gqac_tensor_bytes(t));
    }
    return made;
}

static void drop(pasts *all) {
    for (int i = 0; i < all->n; i++)
        free(all->tensors[i].data);
}

/* The presents of a sequence in tensors of `rows` rows, as an ONNX Runtime session would have
 * them. */
static pasts presents_of(const gqac_program *p, const gqac_sequence *q, int64_t rows) {
    const gqac_kv_pair *pairs;
    const int n = gqac_program_kv_pairs(p, &pairs);
    const int64_t length = gqac_sequence_length(q);
    pasts made = make(p, rows, 0x7f);
    for (int i = 0; i < n; i++) {
        const gqac_tensor *t = &made.tensors[i];
        const size_t row = (size_t)t->dims[3] * (size_t)gqac_dtype_bits(t->dtype) / 8;
        const size_t bytes = (size_t)t->dims[1] * (size_t)length * row;
        char *packed = malloc(bytes);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_export(q, pairs[n - 1 - i].past, packed, bytes, &diag),
                              GQAC_OK);
        for (int64_t h = 0; h < t->dims[1]; h++)
            memcpy((char *)t->data + (size_t)(h * rows) * row, packed + (size_t)(h * length) * row,
                   (size_t)length * row);
        free(packed);
    }
    return made;
}

static gqac_status look(gqac_store *store, const int64_t *ids, int64_t n, pasts *all, bool packed,
                        int64_t *length) {
    memset(&diag, 0, sizeof diag);
    return gqac_prefix_lookup(store, NULL, ids, n, NULL, all->n, all->names, all->tensors, packed,
                              length, &diag);
}

static gqac_status put(gqac_store *store, const int64_t *ids, int64_t n, const pasts *all) {
    memset(&diag, 0, sizeof diag);
    return gqac_prefix_add(store, NULL, ids, n, NULL, all->n, all->names, all->tensors, &diag);
}

/* Checks that row r of head h of each tensor has the bits of `expected`, and that the bytes of rows
 * after `length` are unchanged. */
static void compare(const pasts *got, const pasts *expected, int64_t length, int byte) {
    for (int i = 0; i < got->n; i++) {
        const gqac_tensor *a = &got->tensors[i], *b = &expected->tensors[i];
        const size_t row = (size_t)a->dims[3] * (size_t)gqac_dtype_bits(a->dtype) / 8;
        for (int64_t h = 0; h < a->dims[1]; h++) {
            const char *x = (const char *)a->data + (size_t)(h * a->dims[2]) * row;
            const char *y = (const char *)b->data + (size_t)(h * b->dims[2]) * row;
            CU_ASSERT(!memcmp(x, y, (size_t)length * row));
            for (size_t at = (size_t)length * row; at < (size_t)a->dims[2] * row; at++)
                CU_ASSERT_EQUAL_FATAL((unsigned char)x[at], byte);
        }
    }
}

static void check(const char *model, const char *target) {
    gqac_program *p = rig_program(model, "cpu"), *describes = rig_program(model, target);
    gqac_context *context = rig_context(p);
    gqac_sequence *q = rig_sequence(p, 0);
    gqac_store *store = rig_store(describes, 0, 0);
    int64_t ids[N + 1], length = -1;
    rig_ids(ids, N + 1, 1);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, q, ids, N, 1, &diag), GQAC_OK);
    pasts presents = presents_of(p, q, ROWS), exact = presents_of(p, q, N);
    pasts found = make(p, ROWS, 3);
    CU_ASSERT_EQUAL(look(store, ids, N, &found, false, &length), GQAC_OK);
    CU_ASSERT_EQUAL(length, 0);
    compare(&found, &presents, 0, 3);
    static const int64_t counts[] = {1, 63, 64, 65, 128, N};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int64_t n = counts[i];
        CU_ASSERT_EQUAL(put(store, ids, n, n == N ? &exact : &presents), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_store_match(store, NULL, NULL, ids, N), n);
        drop(&found);
        found = make(p, ROWS, 5);
        CU_ASSERT_EQUAL(look(store, ids, N + 1, &found, false, &length), GQAC_OK);
        CU_ASSERT_EQUAL(length, n);
        compare(&found, &presents, n, 5);
        drop(&found);
        found = make(p, ROWS, 5);
        CU_ASSERT_EQUAL(look(store, ids, N + 1, &found, true, &length), GQAC_OK);
        CU_ASSERT(length == n && found.tensors[0].dims[2] == n);
        compare(&found, &presents, n, 0);
    }
    drop(&found);
    found = make(p, 70, 9); /* only as many rows as fit, and never all ids */
    CU_ASSERT_EQUAL(look(store, ids, N, &found, false, &length), GQAC_OK);
    CU_ASSERT_EQUAL(length, 70);
    CU_ASSERT_EQUAL(look(store, ids, 41, &found, true, &length), GQAC_OK);
    CU_ASSERT(length == 40 && found.tensors[0].dims[2] == 40);
    compare(&found, &presents, 40, 0);
    ids[20] = (ids[20] + 1) % 200;
    CU_ASSERT_EQUAL(look(store, ids, N, &found, true, &length), GQAC_OK);
    CU_ASSERT_EQUAL(length, 20);
    ids[0] = (ids[0] + 1) % 200;
    CU_ASSERT_EQUAL(look(store, ids, N, &found, true, &length), GQAC_OK);
    CU_ASSERT(length == 0 && found.tensors[0].dims[2] == 0);
    gqac_store_free(store);
    CU_ASSERT(!kv_pool_blocks_in_use(describes->pool));
    drop(&found);
    drop(&exact);
    drop(&presents);
    gqac_sequence_free(q);
    gqac_context_free(context);
    gqac_program_free(describes);
    gqac_program_free(p);
}

static void test_bits(void) {
    check("test/models/llama/model.onnx", "cpu");
    check("test/models/llama/model.onnx", "ref"); /* packs no weights */
    check("test/models/llama-fp16/model.onnx", "ref");
    check("test/models/mistral/model.onnx", "cpu"); /* has a window */
}

static void test_errors(void) {
    gqac_program *p = rig_program("test/models/llama/model.onnx", "ref");
    gqac_program *conv = rig_program("test/models/lfm2/model.onnx", "ref");
    gqac_store *store = rig_store(p, 0, 0), *other = rig_store(conv, 0, 0);
    int64_t ids[N], length = -7;
    pasts all = make(p, N, 0), few = all, twice = all, renamed = all, shaped = all, typed = all;
    pasts uneven = all, none = {0};
    rig_ids(ids, N, 1);
    few.n--;
    twice.names[1] = twice.names[0];
    renamed.names[0] = "past_key_values.9.key";
    shaped.tensors[1].dims[3]++;
    typed.tensors[0].dtype = GQAC_F16;
    uneven.tensors[1].dims[2]--;
    const struct {
        pasts *all;
        gqac_status status;
    } wrong[] = {{&few, GQAC_USAGE},           {&twice, GQAC_USAGE},
                 {&renamed, GQAC_USAGE},       {&shaped, GQAC_INVALID_INPUT},
                 {&typed, GQAC_INVALID_INPUT}, {&uneven, GQAC_INVALID_INPUT},
                 {&none, GQAC_USAGE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT_EQUAL(look(store, ids, N, wrong[i].all, true, &length), wrong[i].status);
        CU_ASSERT_EQUAL(put(store, ids, N, wrong[i].all), wrong[i].status);
        CU_ASSERT(length == -7 && *diag.what);
    }
    CU_ASSERT_EQUAL(put(store, ids, 0, &all), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(put(store, ids, N + 1, &all), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(look(store, ids, 0, &all, true, &length), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(put(other, ids, N, &all), GQAC_UNSUPPORTED);
    CU_ASSERT(strstr(diag.what, "conv") && strstr(diag.hint, "gqac_store_open"));
    CU_ASSERT_EQUAL(look(other, ids, N, &all, true, &length), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(rig_counts(store).bytes, 0);
    drop(&all);
    gqac_store_free(store);
    gqac_store_free(other);
    gqac_program_free(conv);
    gqac_program_free(p);
}

/* A failed allocation is an error, and nothing leaks. */
static void test_memory(void) {
    gqac_program *p = rig_program("test/models/llama/model.onnx", "ref");
    int64_t ids[N], length = 0;
    rig_ids(ids, N, 1);
    pasts all = make(p, ROWS, 0);
    bool failed = true;
    for (size_t n = 1; failed; n++) {
        gqac_store *store = rig_store(p, 0, 0);
        gqac_alloc_fail_at(n, 0);
        gqac_status status = put(store, ids, 100, &all);
        if (status == GQAC_OK)
            status = look(store, ids, N, &all, false, &length);
        failed = gqac_alloc_calls() >= n;
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_FATAL(status == GQAC_OK || (failed && status == GQAC_NO_MEMORY));
        gqac_store_free(store);
        CU_ASSERT_EQUAL_FATAL(kv_pool_blocks_in_use(p->pool), 0);
    }
    CU_ASSERT_EQUAL(length, 100);
    drop(&all);
    gqac_program_free(p);
}

static const unit_case cases[] = {
    {"bits", test_bits}, {"errors", test_errors}, {"memory runs out", test_memory}};

int main(int argc, char **argv) {
    return unit_run("store/pasts", cases, sizeof cases / sizeof *cases, argc, argv);
}
