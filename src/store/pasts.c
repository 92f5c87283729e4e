/* Prefixes as tensors: the store for programs that run the model themselves, and keep past and
 * present as tensors. A prefix goes in and out by way of a sequence. */
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "store/store_impl.h"

/* True if a past or present tensor of the pair has this name. */
static bool names_pair(const gqac_kv_pair *pair, const char *name) {
    return !strcmp(pair->past, name) || !strcmp(pair->present, name);
}

/* Finds the pair of a past or present tensor. */
static gqac_status find_pair(const gqac_store *store, const char *name, const gqac_kv_pair **pair,
                             gqac_diag *diag) {
    const gqac_kv_pair *pairs;
    const int n = gqac_program_kv_pairs(store->program, &pairs);
    for (int i = 0; i < n; i++)
        if (names_pair(&pairs[i], name)) {
            *pair = &pairs[i];
            return GQAC_OK;
        }
    GQAC_FAIL(diag, GQAC_USAGE, "the model has no past or present tensor '%s'", name);
}

/* Caches of layers other than attention are not tensors of rows, or not in this layout. Slots have
 * the order of pairs; of rows that are not codes already, only those of attention can be kept as
 * codes. */
static gqac_status check_model(const gqac_store *store, int n_pasts, gqac_diag *diag) {
    const gqac_program *p = store->program;
    for (int i = 0; i < p->n_kv; i++)
        if (p->kv[i].rows || (!p->kv[i].coded && gqac_dtype_is_float(p->kv[i].dtype))) {
            gqac_diag_set(diag, GQAC_UNSUPPORTED,
                          "the past '%s' of a %s cannot be given as a prefix", p->kv[i].past,
                          p->kv[i].rows ? "recurrent layer" : "causal convolution");
            gqac_diag_rule(diag,
                           "all pasts are rows of attention, [1, heads, capacity, head_size]");
            gqac_diag_hint(diag, "use sequences of gqac: gqac_store_open");
            return GQAC_UNSUPPORTED;
        }
    if (n_pasts != p->n_kv)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has %d past tensors, but %d are given", p->n_kv,
                  n_pasts);
    return GQAC_OK;
}

static gqac_status check_tensor(const gqac_kv_pair *pair, const gqac_tensor *t, gqac_diag *diag) {
    if (t->dtype != pair->dtype || t->rank != 4 || t->dims[0] != 1 || t->dims[1] != pair->heads ||
        t->dims[2] < 0 || t->dims[3] != pair->head_size || (t->dims[2] && !t->data))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the past '%s' must have type and shape %s[1,%lld,capacity,%lld], and memory",
                  pair->past, gqac_dtype_name(pair->dtype), (long long)pair->heads,
                  (long long)pair->head_size);
    return GQAC_OK;
}

/* Checks the tensors, and sets *capacity to the rows that all of them have. */
static gqac_status check_pasts(const gqac_store *store, int n, const char *const *names,
                               const gqac_tensor *pasts, int64_t *capacity, gqac_diag *diag) {
    const gqac_kv_pair *pair = NULL;
    GQAC_TRY(check_model(store, n, diag));
    for (int i = 0; i < n; i++) {
        GQAC_TRY(find_pair(store, names[i], &pair, diag));
        for (int k = 0; k < i; k++)
            if (names_pair(pair, names[k]))
                GQAC_FAIL(diag, GQAC_USAGE, "the past '%s' is given twice", pair->past);
        GQAC_TRY(check_tensor(pair, &pasts[i], diag));
        if (pasts[i].dims[2] != pasts[0].dims[2])
            GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the past '%s' has %lld rows, but '%s' has %lld",
                      names[i], (long long)pasts[i].dims[2], names[0], (long long)pasts[0].dims[2]);
    }
    *capacity = n ? pasts[0].dims[2] : 0;
    return GQAC_OK;
}

/* Copies the first `rows` rows of each head, of `from` rows, to heads of `to` rows. */
static void copy_heads(const gqac_tensor *t, const void *source, int64_t from, void *data,
                       int64_t to, int64_t rows) {
    const size_t row = (size_t)t->dims[3] * (size_t)gqac_dtype_bits(t->dtype) / 8;
    for (int64_t h = 0; h < t->dims[1]; h++)
        memcpy((char *)data + (size_t)(h * to) * row,
               (const char *)source + (size_t)(h * from) * row, (size_t)rows * row);
}

/* ---- lookup --------------------------------------------------------------- */

/* Writes the rows of one past to its tensor. */
static gqac_status export_past(const gqac_sequence *sequence, const char *past, gqac_tensor *t,
                               bool packed, int64_t length, gqac_diag *diag) {
    if (packed) {
        GQAC_TRY(gqac_sequence_export(sequence, past, t->data, gqac_tensor_bytes(t), diag));
        t->dims[2] = length;
        return GQAC_OK;
    }
    gqac_tensor rows = *t;
    rows.dims[2] = length;
    const size_t bytes = gqac_tensor_bytes(&rows);
    rows.data = gqac_alloc(bytes);
    if (!rows.data)
        return gqac_diag_oom(diag, "a prefix");
    const gqac_status status = gqac_sequence_export(sequence, past, rows.data, bytes, diag);
    if (status == GQAC_OK)
        copy_heads(t, rows.data, length, t->data, t->dims[2], length);
    gqac_free(rows.data);
    return status;
}

static gqac_status export_pasts(const gqac_store *store, const gqac_sequence *sequence,
                                const char *const *names, int n, gqac_tensor *pasts, bool packed,
                                int64_t length, gqac_diag *diag) {
    const gqac_kv_pair *pair = NULL;
    for (int i = 0; i < n; i++) {
        GQAC_TRY(find_pair(store, names[i], &pair, diag));
        GQAC_TRY(export_past(sequence, pair->past, &pasts[i], packed, length, diag));
    }
    return GQAC_OK;
}

gqac_status gqac_prefix_lookup(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                               const gqac_sequence_options *options, int n_pasts,
                               const char *const *names, gqac_tensor *pasts, bool packed,
                               int64_t *length, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    gqac_sequence_options own;
    int64_t capacity = 0, reused = 0;
    gqac_sequence_options_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_sequence_options", diag));
    GQAC_TRY(check_pasts(store, n_pasts, names, pasts, &capacity, diag));
    if (!own.capacity || own.capacity > capacity)
        own.capacity = capacity;
    if (capacity) {
        GQAC_TRY(gqac_store_open(store, tenant, ids, n, &own, &sequence, &reused, diag));
    } else if (n < 1) {
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt has %lld ids: it must have at least one",
                  (long long)n);
    }
    gqac_status status = GQAC_OK;
    if (reused)
        status = export_pasts(store, sequence, names, n_pasts, pasts, packed, reused, diag);
    for (int i = 0; i < n_pasts && packed && !reused; i++)
        pasts[i].dims[2] = 0;
    gqac_sequence_free(sequence);
    if (status == GQAC_OK)
        *length = reused;
    return status;
}

/* ---- adding --------------------------------------------------------------- */

/* Imports the first n rows of each tensor. */
static gqac_status import_rows(gqac_store *store, gqac_sequence *sequence, int64_t n, int n_pasts,
                               const char *const *names, const gqac_tensor *pasts,
                               gqac_diag *diag) {
    const gqac_kv_pair *pair = NULL;
    size_t total = 0;
    gqac_tensor *cut = gqac_calloc((size_t)n_pasts + 1, sizeof *cut);
    const char **past = gqac_calloc((size_t)n_pasts + 1, sizeof *past);
    gqac_status status = cut && past ? GQAC_OK : gqac_diag_oom(diag, "a prefix");
    for (int i = 0; i < n_pasts && status == GQAC_OK; i++) {
        status = find_pair(store, names[i], &pair, diag);
        cut[i] = pasts[i];
        cut[i].dims[2] = n;
        past[i] = pair->past;
        total += pasts[i].dims[2] == n ? 0 : gqac_tensor_bytes(&cut[i]);
    }
    char *memory = status == GQAC_OK && total ? gqac_alloc(total) : NULL;
    if (status == GQAC_OK && total && !memory)
        status = gqac_diag_oom(diag, "a prefix");
    for (size_t i = 0, at = 0; memory && i < (size_t)n_pasts; i++) {
        if (pasts[i].dims[2] == n)
            continue;
        cut[i].data = memory + at;
        at += gqac_tensor_bytes(&cut[i]);
        copy_heads(&pasts[i], pasts[i].data, pasts[i].dims[2], cut[i].data, n, n);
    }
    if (status == GQAC_OK)
        status = gqac_sequence_import(sequence, n_pasts, past, cut, diag);
    gqac_free(memory);
    gqac_free(past);
    gqac_free(cut);
    return status;
}

gqac_status gqac_prefix_add(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                            const gqac_sequence_options *options, int n_pasts,
                            const char *const *names, const gqac_tensor *pasts, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    int64_t capacity = 0;
    GQAC_TRY(check_pasts(store, n_pasts, names, pasts, &capacity, diag));
    if (n < 1 || n > capacity)
        GQAC_FAIL(
            diag, GQAC_OUT_OF_RANGE,
            "%lld ids for tensors of %lld rows: there must be at least one id, and a row for each",
            (long long)n, (long long)capacity);
    GQAC_TRY(gqac_sequence_create(store->program, options, &sequence, diag));
    gqac_status status = import_rows(store, sequence, n, n_pasts, names, pasts, diag);
    if (status == GQAC_OK)
        status = sequence_know_ids(sequence, ids, diag);
    if (status == GQAC_OK)
        status = gqac_store_add(store, tenant, sequence, diag);
    gqac_sequence_free(sequence);
    return status;
}
