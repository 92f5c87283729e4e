/* See drafts.h. */
#include "llm/drafts.h"

#include <gqac/speculate.h>

#include "base/common.h"
#include "base/diag.h"

static const size_t least_match[] = {2, 4, 8}; /* by source */

const char *drafts_refusal(const gqac_program *program) {
    const gqac_mixing *mixing = NULL;
    if (gqac_program_last_logits(program))
        return "the model returns the logits of the last token only";
    if (gqac_program_mixing(program, &mixing))
        return "the tokens of a step change each other's logits in this model";
    return NULL;
}

bool drafts_cost_again(const gqac_program *program) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    for (int i = 0; i < n; i++)
        if (pairs[i].rows)
            return true;
    return false;
}

int64_t drafts_most(int64_t wanted, int64_t left, int64_t positions) {
    int64_t most = wanted < GQAC_DRAFTS_MOST ? wanted : GQAC_DRAFTS_MOST;
    most = left - 1 < most ? left - 1 : most;
    return positions < most ? positions : most;
}

/* A match that reaches the end of the list continues with the drafts themselves. */
gqac_status drafts_look_up(drafts *d, const payoff *p, const drafts_wanted *wanted, int64_t *list,
                           size_t n, size_t *drafted, gqac_diag *diag) {
    size_t length = 0;
    *drafted = 0;
    if (!lookup_add(&d->lookup, list, n))
        return gqac_diag_oom(diag, "an index of ids");
    const size_t from = lookup_find(&d->lookup, list, n, &length);
    int source = DRAFTS_LONG;
    while (source > DRAFTS_SHORT && length < least_match[source])
        source--;
    if (!length || (source == DRAFTS_SHORT && wanted->no_short))
        return GQAC_OK;
    d->source = source;
    const int64_t count =
        payoff_count(p, &d->sources[source], wanted->most, wanted->members, wanted->again);
    for (int64_t i = 0; i < count; i++)
        list[n + (size_t)i] = list[from + (size_t)i];
    *drafted = (size_t)count;
    return GQAC_OK;
}

gqac_status drafts_check(const gqac_constraint_state *constraint, int n_eos, const int64_t *eos,
                         const int64_t *ids, size_t *n, gqac_diag *diag) {
    gqac_constraint_state *state = NULL;
    size_t allowed = 0;
    if (!constraint || !*n)
        return GQAC_OK;
    GQAC_TRY(gqac_constraint_fork(constraint, &state, diag));
    gqac_status status = GQAC_OK;
    gqac_diag why; /* a draft that is left out is not an error */
    bool ends = false;
    for (; allowed < *n && status == GQAC_OK && !ends; allowed += status == GQAC_OK) {
        ends = gqac_has_id(eos, (size_t)n_eos, ids[allowed]);
        if (!ends)
            status = gqac_constraint_push(state, ids[allowed], &why);
    }
    gqac_constraint_state_free(state);
    *n = allowed;
    if (status == GQAC_OK || status == GQAC_INVALID_INPUT || status == GQAC_LIMIT)
        return GQAC_OK;
    if (diag)
        *diag = why;
    return status;
}

void drafts_take(drafts *d, int64_t right, bool wrong) {
    draft_source_take(&d->sources[d->source], right, wrong);
}

void drafts_rest(drafts *d) {
    draft_source_rest(&d->sources[d->source]);
}

void drafts_free(drafts *d) {
    lookup_free(&d->lookup);
}
