/* Sequences: creation, rewind, fork, and past tensors in and out. */
#include "runtime/sequence.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

static gqac_status make(const gqac_program *program, const gqac_sequence_options *options,
                        gqac_sequence **sequence, gqac_diag *diag) {
    gqac_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    s->program = program;
    s->final_length = options->final_length;
    *sequence = s;
    return GQAC_OK;
}

gqac_status gqac_sequence_create(const gqac_program *program, const gqac_sequence_options *options,
                                 gqac_sequence **sequence, gqac_diag *diag) {
    static const gqac_sequence_options defaults = {0};
    const gqac_sequence_options *o = options ? options : &defaults;
    if (program->stateless || !program->pool)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (o->capacity < 0 || o->final_length < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "capacity %lld and final length %lld must not be negative",
                  (long long)o->capacity, (long long)o->final_length);
    gqac_sequence *s = NULL;
    GQAC_TRY(make(program, o, &s, diag));
    gqac_status status =
        kv_sequence_create(program->pool, o->kv ? o->kv : "contiguous", o->capacity, &s->kv, diag);
    if (status != GQAC_OK) {
        gqac_sequence_free(s);
        return status;
    }
    *sequence = s;
    return GQAC_OK;
}

void gqac_sequence_free(gqac_sequence *sequence) {
    if (!sequence)
        return;
    kv_sequence_free(sequence->kv);
    gqac_free(sequence);
}

int64_t gqac_sequence_length(const gqac_sequence *sequence) {
    return kv_sequence_length(sequence->kv);
}

const char *gqac_sequence_kind(const gqac_sequence *sequence) {
    return kv_sequence_kind(sequence->kv);
}

gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag) {
    GQAC_TRY(kv_sequence_rewind(sequence->kv, length, diag));
    if (length == 0) { /* nothing cached depends on a rope table any more */
        sequence->pinned = 0;
        sequence->imported = false;
    }
    return GQAC_OK;
}

gqac_status gqac_sequence_fork(const gqac_sequence *sequence, gqac_sequence **fork,
                               gqac_diag *diag) {
    gqac_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    *s = *sequence;
    s->kv = NULL;
    gqac_status status = kv_sequence_fork(sequence->kv, &s->kv, diag);
    if (status != GQAC_OK) {
        gqac_sequence_free(s);
        return status;
    }
    *fork = s;
    return GQAC_OK;
}

/* ---- past tensors -------------------------------------------------------- */

static int find_slot(const gqac_program *program, const char *name) {
    for (int i = 0; i < program->n_kv; i++)
        if (!strcmp(program->kv[i].past, name) || !strcmp(program->kv[i].present, name))
            return i;
    return -1;
}

static size_t row_bytes(const kv_slot *slot) {
    return (size_t)slot->head_size * (size_t)gqac_dtype_bits(slot->dtype) / 8;
}

gqac_status gqac_sequence_export(const gqac_sequence *sequence, const char *name, void *data,
                                 size_t bytes, gqac_diag *diag) {
    const gqac_program *p = sequence->program;
    const int slot = find_slot(p, name);
    if (slot < 0)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has no past tensor '%s'", name);
    const int64_t length = kv_sequence_length(sequence->kv);
    const size_t need = (size_t)(p->kv[slot].heads * length) * row_bytes(&p->kv[slot]);
    if (bytes < need)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "'%s' needs %zu bytes, the buffer has %zu", name, need,
                  bytes);
    if (length)
        kv_read_rows(sequence->kv, slot, 0, length, data, length);
    return GQAC_OK;
}

/* Checks one past tensor against its slot; the first tensor sets *length (-1 before). */
static gqac_status check_past(const kv_slot *slot, const gqac_tensor *t, int64_t *length,
                              gqac_diag *diag) {
    if (t->dtype != slot->dtype)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "'%s' is %s, expected %s", slot->past,
                  gqac_dtype_name(t->dtype), gqac_dtype_name(slot->dtype));
    if (t->rank != 4 || t->dims[0] != 1 || t->dims[1] != slot->heads ||
        t->dims[3] != slot->head_size)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "'%s' must have shape [1,%lld,T,%lld]", slot->past,
                  (long long)slot->heads, (long long)slot->head_size);
    if (*length >= 0 && t->dims[2] != *length)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "'%s' has %lld rows, the others have %lld", slot->past,
                  (long long)t->dims[2], (long long)*length);
    *length = t->dims[2];
    return GQAC_OK;
}

gqac_status gqac_sequence_import(gqac_sequence *sequence, int n, const char *const *names,
                                 const gqac_tensor *tensors, gqac_diag *diag) {
    const gqac_program *p = sequence->program;
    int64_t length = -1;
    if (kv_sequence_length(sequence->kv) != 0)
        GQAC_FAIL(diag, GQAC_USAGE, "past tensors can only be imported into an empty sequence");
    for (int i = 0; i < n; i++) {
        const int slot = find_slot(p, names[i]);
        if (slot < 0)
            GQAC_FAIL(diag, GQAC_USAGE, "the model has no past tensor '%s'", names[i]);
        for (int j = 0; j < i; j++)
            if (find_slot(p, names[j]) == slot)
                GQAC_FAIL(diag, GQAC_USAGE, "past tensor '%s' is given twice", names[i]);
        GQAC_TRY(check_past(&p->kv[slot], &tensors[i], &length, diag));
    }
    if (n != p->n_kv)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has %d past tensors, %d are given", p->n_kv, n);
    GQAC_TRY(kv_sequence_reserve(sequence->kv, length, diag));
    for (int i = 0; i < n && length; i++)
        kv_write_rows(sequence->kv, find_slot(p, names[i]), 0, length, tensors[i].data, length);
    kv_sequence_publish(sequence->kv, length);
    /* which rope table rotated the rows is what their length, or the declared one, tells */
    sequence->pinned = sequence->final_length ? sequence->final_length : length;
    sequence->imported = length > 0;
    return GQAC_OK;
}
