/* A proof as a whole: its options, its series of plans, its report. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sized.h"
#include "equiv/equiv_impl.h"

static const char *const via_names[] = {
    [GQAC_EQUIV_SPLIT] = "split",       [GQAC_EQUIV_DECODE] = "decode",
    [GQAC_EQUIV_IMPORT] = "import",     [GQAC_EQUIV_PREFIX] = "prefix",
    [GQAC_EQUIV_SNAPSHOT] = "snapshot", [GQAC_EQUIV_BAKED] = "baked"};
enum { VIAS = sizeof via_names / sizeof *via_names, TOKENS = 64 };

const char *gqac_equiv_via_name(int via) {
    return via >= 0 && via < VIAS ? via_names[via] : NULL;
}

/* ---- preparing ------------------------------------------------------------- */

static const char *kind(const equiv *e, int i) {
    return e->options.n_kv ? e->options.kv[i] : "contiguous";
}

static int kinds(const equiv *e) {
    return e->options.n_kv ? e->options.n_kv : 1;
}

static int threads_at(const equiv *e, int i) {
    return e->options.n_threads ? e->options.threads[i] : gqac_threads_default();
}

static int numbers_of_threads(const equiv *e) {
    return e->options.n_threads ? e->options.n_threads : 1;
}

/* How often each plan is run: hits come from memory, and from disk. */
static int runs_of_plan(const equiv *e) {
    return equiv_is_saved(e) ? 2 : 1;
}

static gqac_status check_ranges(const gqac_equiv_options *o, gqac_diag *diag) {
    const struct {
        const char *rule;
        bool kept;
    } rules[] = {{"tokens >= 1, or 0 for the default", o->tokens >= 1},
                 {"0 <= random < 2^31", o->random >= 0 && o->random <= INT32_MAX},
                 {"n_chunks >= 0", o->n_chunks >= 0},
                 {"batch >= 1, or 0 for the default", o->batch >= 1},
                 {"n_threads >= 0", o->n_threads >= 0},
                 {"n_kv >= 0", o->n_kv >= 0},
                 {"budget >= 0", o->budget >= 0},
                 {"via is a value of gqac_equiv_via", gqac_equiv_via_name((int)o->via)}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].kept) {
            gqac_diag_set(diag, GQAC_OUT_OF_RANGE, "an option of the proof is out of range");
            gqac_diag_rule(diag, "%s", rules[i].rule);
            return GQAC_OUT_OF_RANGE;
        }
    return GQAC_OK;
}

static gqac_status check_options(const equiv *e) {
    const gqac_equiv_options *o = &e->options;
    GQAC_TRY(check_ranges(o, e->diag));
    if ((o->n_threads && !o->threads) || (o->n_kv && !o->kv) || (o->n_chunks && !o->chunks))
        GQAC_FAIL(e->diag, GQAC_USAGE,
                  "a list (threads, kv or chunks) of the proof is NULL, but its number is not 0");
    if (gqac_program_is_stateless(e->program) || gqac_program_is_stateless(e->reference))
        GQAC_FAIL(e->diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (e->vocabulary < 1)
        GQAC_FAIL(e->diag, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    for (int64_t i = 0; o->ids && i < o->tokens; i++)
        if (o->ids[i] < 0 || o->ids[i] >= e->vocabulary)
            GQAC_FAIL(e->diag, GQAC_OUT_OF_RANGE, "token id %lld is not in [0, %lld)",
                      (long long)o->ids[i], (long long)e->vocabulary);
    if (o->embeddings && !e->embedding)
        GQAC_FAIL(e->diag, GQAC_USAGE,
                  "the options have embeddings, but the model needs token ids");
    return GQAC_OK;
}

static gqac_status check_kinds(equiv *e) {
    char profile[sizeof e->profile];
    for (int i = 0; i < kinds(e); i++) {
        GQAC_TRY(equiv_profile(e, kind(e, i), profile, sizeof profile));
        if (e->options.via == GQAC_EQUIV_BAKED)
            GQAC_TRY(equiv_hit_check_baked(e, kind(e, i)));
        if (!i)
            memcpy(e->first_profile, profile, sizeof profile);
    }
    return GQAC_OK;
}

static void open_report(equiv *e) {
    e->report = (gqac_equiv_report){.size = sizeof e->report,
                                    .tokens = e->rows[0].n,
                                    .vocabulary = e->vocabulary,
                                    .batch = e->batch,
                                    .ids = e->rows[0].ids,
                                    .logits = e->rows[0].logits,
                                    .profile = e->first_profile,
                                    .planned = e->n_plans * numbers_of_threads(e) * kinds(e) *
                                               runs_of_plan(e),
                                    .series = e->series};
}

static gqac_status fill(equiv *e, const gqac_program *program, const gqac_equiv_options *options) {
    GQAC_TRY(
        gqac_sized_take(&e->options, sizeof e->options, options, "gqac_equiv_options", e->diag));
    gqac_equiv_options *o = &e->options;
    if (o->ids && o->tokens < 1)
        GQAC_FAIL(e->diag, GQAC_OUT_OF_RANGE, "a proof of given ids needs at least one token");
    o->batch = o->batch ? o->batch : 1;
    e->program = program;
    if (o->via == GQAC_EQUIV_BAKED)
        GQAC_TRY(equiv_hit_find_baked(e));
    o->tokens = o->tokens ? o->tokens : TOKENS + e->n_baked;
    e->reference = o->reference ? o->reference : program;
    e->embedding = gqac_program_embedding_size(program);
    e->vocabulary = gqac_program_vocabulary(program);
    e->n_pairs = gqac_program_kv_pairs(program, &e->pairs);
    GQAC_TRY(check_options(e));
    if (equiv_is_saved(e))
        GQAC_TRY(equiv_hit_folder(e));
    GQAC_TRY(equiv_make_rows(e, o->batch, o->ids, o->tokens));
    GQAC_TRY(equiv_make_plans(e));
    GQAC_TRY(check_kinds(e));
    e->series = gqac_calloc((size_t)kinds(e) * (size_t)numbers_of_threads(e), sizeof *e->series);
    if (!e->series)
        return gqac_diag_oom(e->diag, "a proof");
    open_report(e);
    return GQAC_OK;
}

gqac_status gqac_equiv_create(const gqac_program *program, const gqac_equiv_options *options,
                              gqac_equiv **made, gqac_diag *diag) {
    *made = NULL;
    equiv *e = gqac_calloc(1, sizeof *e);
    if (!e)
        return gqac_diag_oom(diag, "a proof");
    e->diag = diag;
    e->options.size = sizeof e->options;
    GQAC_RETURN_MADE(fill(e, program, options), e, made, gqac_equiv_free);
}

void gqac_equiv_free(gqac_equiv *e) {
    if (!e)
        return;
    equiv_free_rows(e);
    equiv_hit_clear(e);
    if (*e->folder)
        rmdir(e->folder);
    gqac_free(e->series);
    gqac_free(e);
}

/* ---- running --------------------------------------------------------------- */

gqac_status equiv_context(const equiv *e, const gqac_program *program, int threads,
                          gqac_context **context) {
    GQAC_TRY(gqac_context_create(program, threads, context, e->diag));
    const gqac_status status =
        gqac_context_set_monitor(*context, e->options.monitor, NULL, e->diag);
    if (status == GQAC_OK)
        return GQAC_OK;
    gqac_context_free(*context);
    *context = NULL;
    return status;
}

/* At least one plan is run: a proof of nothing must not look like one. */
static bool out_of_time(const equiv *e) {
    return e->options.budget > 0 && e->report.ran > 0 &&
           gqac_clock_seconds() - e->start >= e->options.budget;
}

/* What the report says of the first difference. */
void equiv_note_first(equiv *e, const equiv_first *f) {
    const equiv_plan *plan = &e->plans[f->plan];
    if (e->has_first)
        return;
    e->has_first = true;
    e->first = (gqac_equiv_first){.size = sizeof e->first,
                                  .position = f->position,
                                  .index = f->index,
                                  .layer = f->layer,
                                  .what = f->what,
                                  .actual = f->actual,
                                  .expected = f->expected,
                                  .n_chunks = plan->n,
                                  .chunks = plan->chunks};
    e->report.first = &e->first;
}

static gqac_status run_plans(equiv *e, const equiv_run *where) {
    const equiv_run memory = {.context = where->context, .kv = where->kv};
    for (int p = 0; p < e->n_plans && !out_of_time(e); p++) {
        gqac_status status = equiv_run_plan(e, p, &memory);
        if (status == GQAC_OK && where->fresh && !out_of_time(e))
            status = equiv_run_plan(e, p, where);
        if (e->options.on_plan)
            e->options.on_plan(e->options.arg, &e->report);
        GQAC_TRY(status);
    }
    return GQAC_OK;
}

/* All plans with one number of threads in one kind of cache. */
static gqac_status run_series(equiv *e, int threads, const char *kv) {
    equiv_run where = {.kv = kv};
    const gqac_equiv_report before = e->report;
    gqac_status status = equiv_context(e, e->program, threads, &where.context);
    if (status == GQAC_OK && runs_of_plan(e) == 2)
        status = equiv_context(e, e->options.fresh, threads, &where.fresh);
    if (status == GQAC_OK)
        status = run_plans(e, &where);
    gqac_context_free(where.context);
    gqac_context_free(where.fresh);
    GQAC_TRY(status);
    gqac_equiv_series *series = &e->series[e->report.n_series++];
    *series = (gqac_equiv_series){.size = sizeof *series,
                                  .kv = kv,
                                  .threads = threads,
                                  .planned = e->n_plans * runs_of_plan(e),
                                  .ran = e->report.ran - before.ran,
                                  .compared = e->report.compared - before.compared,
                                  .differing = e->report.differing - before.differing};
    if (e->options.on_series)
        e->options.on_series(e->options.arg, series);
    return GQAC_OK;
}

gqac_status gqac_equiv_run(gqac_equiv *e, gqac_diag *diag) {
    e->diag = diag;
    e->start = gqac_clock_seconds();
    if (e->report.n_series || e->report.ran)
        GQAC_FAIL(diag, GQAC_USAGE, "the proof has already run; create another one");
    for (int k = 0; k < kinds(e); k++) {
        GQAC_TRY(equiv_reference(e, kind(e, k)));
        for (int t = 0; t < numbers_of_threads(e); t++)
            GQAC_TRY(run_series(e, threads_at(e, t), kind(e, k)));
    }
    return GQAC_OK;
}

const gqac_equiv_report *gqac_equiv_get_report(const gqac_equiv *e) {
    return &e->report;
}
