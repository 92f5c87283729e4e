/* Via snapshot, prefix and baked: sequences that begin with cached rows of another sequence, the
 * donor, or of the artefact.
 *
 * A donor computes the prefix and, unless the model has states, some other tokens after it, so that
 * the hit ends inside its rows. Then it is freed. With `fresh`, the hit is saved to disk, and
 * loaded by a second program that was opened for this. How many tokens are reused is known
 * beforehand, and checked: a cache that never hits would have the right bits too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/common.h"
#include "equiv/equiv_impl.h"

enum { MOST_EXTRA = 60 /* tokens of the donor after the prefix */ };

static bool has_states(const equiv *e) {
    for (int k = 0; k < e->n_pairs; k++)
        if (e->pairs[k].rows)
            return true;
    return false;
}

static gqac_status append(const equiv_hit *h, gqac_sequence *sequence, const int64_t *ids,
                          int64_t n) {
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = sequence,
                                 .tokens = ids,
                                 .count = n,
                                 .embeddings = h->row->embeddings};
    return n ? gqac_step(h->context, 1, &item, h->e->diag) : GQAC_OK;
}

static gqac_sequence_options options_of(const equiv_hit *h) {
    return (gqac_sequence_options){
        .size = sizeof(gqac_sequence_options), .kv = h->kv, .final_length = h->row->n};
}

static gqac_status check_count(const equiv_hit *h, const char *what, int64_t actual,
                               int64_t expected) {
    gqac_diag *diag = h->e->diag;
    if (actual == expected)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_MISMATCH, "%lld of %lld tokens were %s, not %lld", (long long)actual,
                  (long long)h->row->n, what, (long long)expected);
    gqac_diag_where(diag, "a prefix of %lld tokens, %s, %s", (long long)h->length,
                    h->e->options.via == GQAC_EQUIV_PREFIX
                        ? "store"
                        : gqac_equiv_via_name((int)h->e->options.via),
                    h->fresh ? "from disk" : "in memory");
    gqac_diag_rule(diag, "tokens that are cached must be reused, and the others computed once");
    return GQAC_MISMATCH;
}

/* ---- snapshots ----------------------------------------------------------- */

/* Replaces a snapshot by one that was saved, and loaded into the other program. */
static gqac_status move_snapshot(const equiv_hit *h, gqac_snapshot **snapshot) {
    char path[sizeof h->e->folder + 16];
    snprintf(path, sizeof path, "%s/hit.gqs", h->e->folder);
    GQAC_TRY(gqac_snapshot_save(*snapshot, path, h->e->diag));
    gqac_snapshot_free(*snapshot);
    *snapshot = NULL;
    const gqac_status status = gqac_snapshot_load(h->e->options.fresh, path, snapshot, h->e->diag);
    unlink(path);
    return status;
}

static gqac_status take_snapshot(const equiv_hit *h, gqac_sequence *donor,
                                 gqac_snapshot **snapshot) {
    GQAC_TRY(append(h, donor, h->row->ids, h->length));
    return gqac_snapshot_take(donor, snapshot, h->e->diag);
}

static gqac_status hit_snapshot(const equiv_hit *h, gqac_sequence **sequence) {
    gqac_diag *diag = h->e->diag;
    const gqac_sequence_options options = options_of(h);
    gqac_sequence *donor = NULL;
    gqac_snapshot *snapshot = NULL;
    GQAC_TRY(gqac_sequence_create(h->e->program, &options, &donor, diag));
    gqac_status status = take_snapshot(h, donor, &snapshot);
    gqac_sequence_free(donor);
    if (status == GQAC_OK && h->fresh)
        status = move_snapshot(h, &snapshot);
    if (status == GQAC_OK)
        status = gqac_snapshot_restore(snapshot, &options, sequence, diag);
    gqac_snapshot_free(snapshot);
    GQAC_TRY(status);
    return check_count(h, "reused", gqac_sequence_length(*sequence), h->length);
}

/* ---- the store ----------------------------------------------------------- */

static gqac_status open_store(const equiv_hit *h, const gqac_program *program, gqac_store **store) {
    gqac_store_options options;
    gqac_store_options_init(&options);
    options.folder = h->fresh ? h->e->folder : NULL;
    return gqac_store_create(program, &options, store, h->e->diag);
}

/* Ids of the donor: the prefix, then others. *n is their number. The caller frees them. */
static int64_t *donor_ids(const equiv_hit *h, int64_t *n) {
    /* From 1 to MOST_EXTRA, another number for each of that many plans in a row. */
    const int64_t left = h->row->n - h->length, extra = 1 + (h->plan * 13) % MOST_EXTRA;
    const int64_t more = has_states(h->e) ? 0 : extra < left ? extra : left;
    int64_t *ids = gqac_alloc((size_t)(h->length + more + 1) * sizeof *ids);
    *n = h->length + more;
    for (int64_t i = 0; ids && i < *n; i++) /* the first of the others differs */
        ids[i] = i < h->length ? h->row->ids[i] : (h->row->ids[i] + 1) % h->e->vocabulary;
    return ids;
}

/* How many of the n tokens of a donor can be reused for a prompt of the same tokens: the last one
 * is computed again, and in a model with states those after the last state before it. */
static gqac_status find_reach(const equiv_hit *h, const gqac_sequence *donor, int64_t n,
                              int64_t *reach) {
    gqac_sequence *fork = NULL;
    gqac_snapshot *snapshot = NULL; /* a store sees forks of its sequences, but not restored ones */
    GQAC_TRY(gqac_snapshot_take(donor, &snapshot, h->e->diag));
    gqac_status status = gqac_snapshot_restore(snapshot, NULL, &fork, h->e->diag);
    if (status == GQAC_OK)
        status = gqac_sequence_rewind(fork, n - 1, h->e->diag);
    if (status == GQAC_OK)
        *reach = n - 1 - gqac_sequence_missing(fork);
    gqac_sequence_free(fork);
    gqac_snapshot_free(snapshot);
    return status;
}

static gqac_status fill_donor(const equiv_hit *h, gqac_store *store, gqac_sequence *donor,
                              const int64_t *ids, int64_t n, int64_t *expected) {
    GQAC_TRY(append(h, donor, ids, n));
    *expected = h->length;
    if (h->length == h->row->n)
        GQAC_TRY(find_reach(h, donor, n, expected));
    return h->fresh ? gqac_store_save(store, NULL, donor, h->e->diag) : GQAC_OK;
}

/* Puts the prefix into a store. */
static gqac_status donate(const equiv_hit *h, gqac_store *store, int64_t *expected) {
    const gqac_sequence_options options = options_of(h);
    gqac_sequence *donor = NULL;
    int64_t n = 0, reused = 0, *ids = donor_ids(h, &n);
    *expected = 0;
    if (!ids)
        return gqac_diag_oom(h->e->diag, "tokens");
    gqac_status status = GQAC_OK;
    if (n)
        status = gqac_store_open(store, NULL, ids, n, &options, &donor, &reused, h->e->diag);
    if (status == GQAC_OK && n)
        status = check_count(h, "in an empty store", reused, 0);
    if (status == GQAC_OK && n)
        status = fill_donor(h, store, donor, ids, n, expected);
    gqac_sequence_free(donor);
    gqac_free(ids);
    return status;
}

static gqac_status hit_store(const equiv_hit *h, gqac_store **store, gqac_sequence **sequence) {
    const gqac_sequence_options options = options_of(h);
    int64_t expected = 0, reused = 0;
    GQAC_TRY(open_store(h, h->e->program, store));
    GQAC_TRY(donate(h, *store, &expected));
    if (h->fresh) {
        gqac_store_free(*store);
        *store = NULL;
        GQAC_TRY(open_store(h, h->e->options.fresh, store));
    }
    GQAC_TRY(gqac_store_open(*store, NULL, h->row->ids, h->row->n, &options, sequence, &reused,
                             h->e->diag));
    return check_count(h, "reused", reused, expected);
}

/* ---- what is baked --------------------------------------------------------- */

gqac_status equiv_hit_find_baked(equiv *e) {
    const gqac_snapshot *baked = gqac_program_baked(e->program);
    int64_t first = 0;
    if (baked) {
        e->baked = gqac_snapshot_ids(baked, &first, &e->n_baked);
        return GQAC_OK;
    }
    gqac_diag_set(e->diag, GQAC_USAGE, "the program has no baked prefix");
    gqac_diag_hint(e->diag, "bake one: gqac compile MODEL -o OUT --bake FILE");
    return GQAC_USAGE;
}

static bool keeps_all(const char *kind) {
    return !strcmp(kind, "contiguous") || !strcmp(kind, "paged");
}

gqac_status equiv_hit_check_baked(const equiv *e, const char *kv) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    gqac_sequence *baked = NULL, *own = NULL;
    GQAC_TRY(gqac_snapshot_restore(gqac_program_baked(e->program), NULL, &baked, e->diag));
    gqac_status status = gqac_sequence_create(e->program, &options, &own, e->diag);
    if (status == GQAC_OK) {
        const char *a = gqac_sequence_kind(baked), *b = gqac_sequence_kind(own);
        if (strcmp(a, b) != 0 && !(keeps_all(a) && keeps_all(b)))
            status = gqac_diag_set(
                e->diag, GQAC_USAGE,
                "the kind of cache '%s' cannot use the prefix, which was baked for the kind '%s'",
                b, a);
    }
    gqac_sequence_free(baked);
    gqac_sequence_free(own);
    return status;
}

/* How many of the first n tokens of the row can be reused. A fork of the prefix says where the rows
 * of a model with states can be continued. */
static gqac_status find_baked(const equiv_hit *h, int64_t n, int64_t *reach) {
    gqac_sequence *fork = NULL;
    const int64_t most = n - 1 < h->e->n_baked ? n - 1 : h->e->n_baked;
    const int64_t same = gqac_common_ids(h->row->ids, h->e->baked, most);
    GQAC_TRY(gqac_snapshot_restore(gqac_program_baked(h->e->program), NULL, &fork, h->e->diag));
    const gqac_status status = gqac_sequence_rewind(fork, same, h->e->diag);
    *reach = status == GQAC_OK ? same - gqac_sequence_missing(fork) : 0; /* a window was left */
    gqac_sequence_free(fork);
    return status == GQAC_OUT_OF_RANGE ? GQAC_OK : status;
}

static gqac_status hit_baked(const equiv_hit *h, gqac_sequence **sequence) {
    const gqac_sequence_options options = options_of(h);
    const int64_t n = h->length < h->row->n ? h->length + 1 : h->row->n;
    int64_t reused = 0, expected = 0;
    GQAC_TRY(find_baked(h, n, &expected));
    GQAC_TRY(gqac_sequence_begin(h->e->program, h->row->ids, n, &options, sequence, &reused,
                                 h->e->diag));
    return check_count(h, "reused", reused, expected);
}

gqac_status equiv_hit_open(const equiv_hit *h, gqac_store **store, gqac_sequence **sequence) {
    if (h->e->options.via == GQAC_EQUIV_BAKED)
        return hit_baked(h, sequence);
    return h->e->options.via == GQAC_EQUIV_PREFIX ? hit_store(h, store, sequence)
                                                  : hit_snapshot(h, sequence);
}

gqac_status equiv_hit_check(const equiv_hit *h, const gqac_sequence *sequence, int64_t reused) {
    h->e->report.reused_tokens += reused;
    h->e->report.computed_tokens += gqac_sequence_computed(sequence);
    return check_count(h, "computed", gqac_sequence_computed(sequence), h->row->n - reused);
}

/* ---- the folder ---------------------------------------------------------- */

gqac_status equiv_hit_folder(equiv *e) {
    const char *tmp = getenv("TMPDIR");
    snprintf(e->folder, sizeof e->folder, "%.200s/gqac-equiv-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (mkdtemp(e->folder))
        return GQAC_OK;
    gqac_diag_set(e->diag, GQAC_IO, "cannot make the folder '%s'", e->folder);
    gqac_diag_hint(e->diag, "set TMPDIR to a folder in which files can be written");
    e->folder[0] = '\0';
    return GQAC_IO;
}

void equiv_hit_clear(const equiv *e) {
    gqac_store_file *files = NULL;
    size_t n = 0;
    char path[sizeof e->folder + 128];
    if (!*e->folder || gqac_store_folder_list(e->folder, false, &files, &n, NULL) != GQAC_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%.100s", e->folder, files[i].name);
        unlink(path);
    }
    gqac_store_folder_free(files, n);
}
