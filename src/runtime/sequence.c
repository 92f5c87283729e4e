/* Sequences: creation, rewind, fork, and past tensors in and out. */
#include "runtime/sequence.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/float_mode.h"
#include "base/sized.h"

gqac_status sequence_check_program(const gqac_program *program, gqac_diag *diag) {
    if (program->stateless || !program->pool)
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    return GQAC_OK;
}

gqac_status sequence_check_options(const gqac_sequence_options *o, gqac_diag *diag) {
    if (o->capacity < 0 || o->final_length < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "capacity %lld and final length %lld must not be negative",
                  (long long)o->capacity, (long long)o->final_length);
    return GQAC_OK;
}

gqac_status gqac_sequence_create(const gqac_program *program, const gqac_sequence_options *options,
                                 gqac_sequence **sequence, gqac_diag *diag) {
    gqac_sequence_options own = {0};
    const gqac_sequence_options *const o = &own;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_sequence_options", diag));
    GQAC_TRY(sequence_check_program(program, diag));
    GQAC_TRY(sequence_check_options(o, diag));
    gqac_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    s->program = program;
    s->final_length = o->final_length;
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
    if (sequence->watch.freed)
        sequence->watch.freed(sequence->watch.arg, sequence);
    kv_sequence_free(sequence->kv);
    gqac_free(sequence->ids);
    gqac_free(sequence);
}

const gqac_program *gqac_sequence_program(const gqac_sequence *sequence) {
    return sequence->program;
}

int64_t gqac_sequence_length(const gqac_sequence *sequence) {
    return kv_sequence_length(sequence->kv) + sequence->missing;
}

int64_t gqac_sequence_missing(const gqac_sequence *sequence) {
    return sequence->missing;
}

int64_t gqac_sequence_computed(const gqac_sequence *sequence) {
    return sequence->computed;
}

gqac_status sequence_reserve_ids(gqac_sequence *s, int64_t length, gqac_diag *diag) {
    const int64_t need = length - s->given;
    if (need <= s->ids_capacity)
        return GQAC_OK;
    const int64_t doubled =
        2 * (s->ids_capacity > GQAC_KV_BLOCK / 2 ? s->ids_capacity : GQAC_KV_BLOCK / 2);
    const int64_t count = need > doubled ? need : doubled;
    int64_t *ids = gqac_realloc(s->ids, (size_t)count * sizeof *ids);
    if (!ids)
        return gqac_diag_oom(diag, "the ids of a sequence");
    s->ids = ids;
    s->ids_capacity = count;
    return GQAC_OK;
}

size_t gqac_sequence_bytes(const gqac_sequence *sequence, size_t *shared) {
    size_t unused;
    return kv_sequence_bytes(sequence->kv, shared ? shared : &unused) +
           (size_t)sequence->ids_capacity * sizeof *sequence->ids;
}

const int64_t *gqac_sequence_ids(const gqac_sequence *sequence, int64_t *first, int64_t *count) {
    *first = sequence->given;
    *count = gqac_sequence_length(sequence) - sequence->given;
    return *count ? sequence->ids : NULL;
}

const char *gqac_sequence_kind(const gqac_sequence *sequence) {
    return kv_sequence_kind(sequence->kv);
}

const char *gqac_sequence_profile(const gqac_sequence *sequence, char *text, size_t size) {
    snprintf(text, size, "%s%s", sequence->program->profile, kv_sequence_profile(sequence->kv));
    return text;
}

const char *gqac_sequence_describe(const gqac_sequence *sequence, char *text, size_t size) {
    char missing[48] = "";
    if (sequence->missing)
        snprintf(missing, sizeof missing, " (%lld to compute again)", (long long)sequence->missing);
    snprintf(text, size, "%s, %lld tokens%s, %d tensors, %zu bytes", gqac_sequence_kind(sequence),
             (long long)gqac_sequence_length(sequence), missing, sequence->program->n_kv,
             gqac_sequence_bytes(sequence, NULL));
    return text;
}

/* The rows of windows that a rewind to `length` needs are gone. */
static gqac_status fail_windows(const gqac_sequence *s, int64_t length, gqac_diag *diag) {
    int64_t least = gqac_sequence_length(s);
    while (least > length && kv_sequence_reach(s->kv, least - 1) == least - 1)
        least--;
    gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                  "cannot rewind a sequence of %lld tokens to %lld: keys and values that a window "
                  "needs there were freed",
                  (long long)gqac_sequence_length(s), (long long)length);
    gqac_diag_rule(diag, "a windowed cache can be rewound by %d tokens, this one to %lld or more",
                   KV_REACH, (long long)least);
    gqac_diag_hint(diag,
                   "rewind to 0 and append the tokens again, or use the cache kind contiguous");
    return GQAC_OUT_OF_RANGE;
}

/* Finds the length, at most `length`, to which rows and states can be rewound. */
static gqac_status find_reach(const gqac_sequence *s, int64_t length, int64_t *reach,
                              gqac_diag *diag) {
    const int64_t now = gqac_sequence_length(s);
    if (length < 0 || length > now)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "cannot rewind a sequence of %lld tokens to %lld",
                  (long long)now, (long long)length);
    *reach = kv_sequence_reach(s->kv, length);
    if (*reach != length && !kv_pool_state_bytes(s->program->pool))
        return fail_windows(s, length, diag);
    if (*reach == length || *reach >= s->given)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                  "cannot rewind to %lld of %lld imported tokens: the model has a recurrent state, "
                  "and only the state after all of them is known",
                  (long long)length, (long long)s->given);
    gqac_diag_hint(diag, "rewind to 0 and append the tokens again");
    return GQAC_OUT_OF_RANGE;
}

gqac_status gqac_sequence_rewind(gqac_sequence *sequence, int64_t length, gqac_diag *diag) {
    int64_t reach = 0;
    GQAC_TRY(find_reach(sequence, length, &reach, diag));
    const int64_t fewer = gqac_sequence_length(sequence) - length;
    GQAC_TRY(kv_sequence_rewind(sequence->kv, reach, diag));
    sequence->drafts = sequence->drafts > fewer ? sequence->drafts - fewer : 0;
    sequence->missing = length - reach;
    if (length == 0) { /* no cached key depends on a rope table */
        sequence->pinned = 0;
        sequence->imported = false;
    }
    if (sequence->given > length) /* later tokens will have ids */
        sequence->given = length;
    return GQAC_OK;
}

gqac_status sequence_fork_unwatched(const gqac_sequence *sequence, gqac_sequence **fork,
                                    gqac_diag *diag) {
    gqac_sequence *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a sequence");
    *s = *sequence;
    s->kv = NULL;
    s->ids = NULL;
    s->ids_capacity = 0;
    s->computed = 0;
    s->drafts = 0; /* are counted with the sequence that computed them */
    s->watch = (sequence_watch){0};
    const int64_t known = gqac_sequence_length(sequence) - s->given;
    gqac_status status = sequence_reserve_ids(s, s->given + known, diag);
    if (status == GQAC_OK && known)
        memcpy(s->ids, sequence->ids, (size_t)known * sizeof *s->ids);
    if (status == GQAC_OK)
        status = kv_sequence_fork(sequence->kv, &s->kv, diag);
    if (status != GQAC_OK) {
        gqac_sequence_free(s);
        return status;
    }
    *fork = s;
    return GQAC_OK;
}

gqac_status gqac_sequence_fork(const gqac_sequence *sequence, gqac_sequence **fork,
                               gqac_diag *diag) {
    GQAC_TRY(sequence_fork_unwatched(sequence, fork, diag));
    (*fork)->watch = sequence->watch;
    if (sequence->watch.forked)
        sequence->watch.forked(sequence->watch.arg);
    return GQAC_OK;
}

gqac_status sequence_share(gqac_sequence *sequence, const kv_sequence *rows, int64_t length,
                           const int64_t *ids, int64_t pinned, gqac_diag *diag) {
    kv_sequence *kv = NULL;
    const int64_t capacity = kv_sequence_capacity(sequence->kv);
    if (capacity && length > capacity)
        GQAC_FAIL(diag, GQAC_CAPACITY, "%lld cached tokens do not fit the capacity of %lld",
                  (long long)length, (long long)capacity);
    GQAC_TRY(sequence_reserve_ids(sequence, length, diag));
    GQAC_TRY(kv_sequence_fork(rows, &kv, diag));
    const gqac_status status = kv_sequence_rewind(kv, length, diag);
    if (status != GQAC_OK) {
        kv_sequence_free(kv);
        return status;
    }
    kv_sequence_set_capacity(kv, capacity);
    kv_sequence_set_kind(kv, sequence->kv);
    kv_sequence_free(sequence->kv);
    sequence->kv = kv;
    memcpy(sequence->ids, ids, (size_t)length * sizeof *ids);
    sequence->pinned = length ? pinned : 0;
    sequence->imported = length > 0;
    return GQAC_OK;
}

/* ---- past tensors -------------------------------------------------------- */

static int find_slot(const gqac_program *program, const char *name) {
    for (int i = 0; i < program->n_kv; i++)
        if (!strcmp(program->kv[i].past, name) || !strcmp(program->kv[i].present, name))
            return i;
    return -1;
}

int64_t gqac_kv_pair_rows(const gqac_kv_pair *pair, int64_t length) {
    return pair->rows ? pair->rows : length;
}

bool sequence_slot_bytes(const kv_slot *slot, int64_t tokens, size_t *bytes) {
    const int64_t rows = slot->rows ? slot->rows : tokens;
    *bytes = (size_t)gqac_dtype_bits(slot->dtype) / 8;
    return gqac_mul_size(*bytes, (size_t)slot->heads, bytes) &&
           gqac_mul_size(*bytes, (size_t)rows, bytes) &&
           gqac_mul_size(*bytes, (size_t)slot->head_size, bytes);
}

/* Bytes of a past tensor for a length that is in memory, which cannot overflow. */
static size_t past_bytes(const gqac_program *p, int slot, int64_t length) {
    size_t bytes = 0;
    (void)sequence_slot_bytes(&p->kv[slot], length, &bytes);
    return bytes;
}

/* Zeros the rows [heads, length, head_size] that no step after `length` tokens reads: some are not
 * kept, and which of them depends on steps before. */
static void clear_unread(const gqac_sequence *s, int slot, int64_t length, unsigned char *rows) {
    const kv_slot *kv = &s->program->kv[slot];
    const int64_t unread =
        kv->tail && kv->tail < length ? length - kv->tail : kv_sequence_first(s->kv, slot);
    const size_t head = past_bytes(s->program, slot, length) / (size_t)kv->heads;
    for (int64_t h = 0; unread && h < kv->heads; h++)
        memset(rows + (size_t)h * head, 0, head / (size_t)length * (size_t)unread);
}

gqac_status gqac_sequence_export(const gqac_sequence *sequence, const char *name, void *data,
                                 size_t bytes, gqac_diag *diag) {
    const gqac_program *p = sequence->program;
    const int slot = find_slot(p, name);
    if (slot < 0)
        GQAC_FAIL(diag, GQAC_USAGE, "the model has no past tensor '%s'", name);
    const int64_t length = kv_sequence_length(sequence->kv);
    const size_t need = past_bytes(p, slot, length);
    if (bytes < need)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the past tensor '%s' needs %zu bytes, but the buffer has %zu", name, need,
                  bytes);
    if (sequence->missing) {
        gqac_diag_set(diag, GQAC_USAGE,
                      "the sequence was rewound: %lld of its %lld tokens are not computed yet",
                      (long long)sequence->missing, (long long)gqac_sequence_length(sequence));
        gqac_diag_hint(diag, "a step computes them; export before the rewind, or after a step");
        return GQAC_USAGE;
    }
    if (p->kv[slot].rows) {
        const void *state = kv_state_last(sequence->kv, slot);
        if (state)
            memcpy(data, state, need);
        else
            memset(data, 0, need);
    } else if (length) {
        kv_read_rows(sequence->kv, slot, 0, length, data, length);
        clear_unread(sequence, slot, length, data);
    }
    return GQAC_OK;
}

/* Checks a past tensor against its slot; if *length is -1, the first tensor with rows sets it. */
static gqac_status check_past(const kv_slot *slot, const gqac_tensor *t, int64_t *length,
                              gqac_diag *diag) {
    if (t->dtype != slot->dtype)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the past tensor '%s' is %s, expected %s", slot->past,
                  gqac_dtype_name(t->dtype), gqac_dtype_name(slot->dtype));
    if (t->rank != 4 || t->dims[0] != 1 || t->dims[1] != slot->heads ||
        t->dims[3] != slot->head_size || (slot->rows && t->dims[2] != slot->rows)) {
        char rows[32] = "T";
        if (slot->rows)
            snprintf(rows, sizeof rows, "%lld", (long long)slot->rows);
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the past tensor '%s' must have shape [1,%lld,%s,%lld]",
                  slot->past, (long long)slot->heads, rows, (long long)slot->head_size);
    }
    if (slot->rows)
        return GQAC_OK;
    if (t->dims[2] < 0)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the past tensor '%s' has %lld rows: must not be negative", slot->past,
                  (long long)t->dims[2]);
    if (*length >= 0 && t->dims[2] != *length)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the past tensor '%s' has %lld rows, but the others have %lld", slot->past,
                  (long long)t->dims[2], (long long)*length);
    *length = t->dims[2];
    return GQAC_OK;
}

/* Checks that the state of no tokens is all zeros. */
static gqac_status check_start(const gqac_kv_pair *pair, const gqac_tensor *t, gqac_diag *diag) {
    const unsigned char *bytes = t->data;
    const size_t n = pair->rows ? gqac_tensor_bytes(t) : 0;
    for (size_t i = 0; i < n; i++) {
        if (!bytes[i])
            continue;
        gqac_diag_set(diag, GQAC_INVALID_INPUT,
                      "there are no tokens, but the state '%s' is not zero", pair->past);
        gqac_diag_rule(diag, "states are zeros when the other past tensors have no rows");
        gqac_diag_hint(diag, "import the rows of all tokens that the state includes");
        return GQAC_INVALID_INPUT;
    }
    return GQAC_OK;
}

static void take_past(gqac_sequence *s, int slot, int64_t length, const gqac_tensor *t) {
    int64_t after = 0;
    if (s->program->kv[slot].rows)
        memcpy(kv_state_due(s->kv, slot, 0, &after), t->data, past_bytes(s->program, slot, length));
    else
        kv_write_rows(s->kv, slot, 0, length, t->data, length);
}

gqac_status sequence_import(gqac_sequence *sequence, int64_t length, int n,
                            const char *const *names, const gqac_tensor *tensors, gqac_diag *diag) {
    const gqac_program *p = sequence->program;
    if (gqac_sequence_length(sequence) != 0)
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
        GQAC_FAIL(diag, GQAC_USAGE, "the model has %d past tensors, but %d are given", p->n_kv, n);
    if (length < 0)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "no past tensor has a row for each token, so the number of tokens is unknown");
    for (int i = 0; i < n && !length; i++)
        GQAC_TRY(check_start(&p->kv_pairs[find_slot(p, names[i])], &tensors[i], diag));
    GQAC_TRY(kv_sequence_restore(sequence->kv, length, length && kv_pool_state_bytes(p->pool),
                                 &length, length, 0, NULL, diag));
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    for (int i = 0; i < n && length; i++)
        take_past(sequence, find_slot(p, names[i]), length, &tensors[i]);
    gqac_float_mode_give_back(&callers);
    kv_sequence_publish(sequence->kv, length);
    sequence->given = length;
    /* the length, or the declared final length, determines which rope table rotated the rows */
    sequence->pinned = sequence->final_length ? sequence->final_length : length;
    sequence->imported = length > 0;
    return GQAC_OK;
}

gqac_status gqac_sequence_import(gqac_sequence *sequence, int n, const char *const *names,
                                 const gqac_tensor *tensors, gqac_diag *diag) {
    return sequence_import(sequence, -1, n, names, tensors, diag);
}

gqac_status sequence_know_ids(gqac_sequence *sequence, const int64_t *ids, gqac_diag *diag) {
    const int64_t length = sequence->given;
    sequence->given = 0;
    const gqac_status status = sequence_reserve_ids(sequence, length, diag);
    if (status != GQAC_OK) {
        sequence->given = length;
        return status;
    }
    if (length)
        memcpy(sequence->ids, ids, (size_t)length * sizeof *ids);
    return GQAC_OK;
}
