/* What the tests of speculation share: texts that repeat themselves, and steps that all take the
 * same time, so that drafts are made whenever possible. */
#ifndef GQAC_TEST_LLM_SPECULATION_RIG_H
#define GQAC_TEST_LLM_SPECULATION_RIG_H

#include "llm/generate_rig.h"

#include <gqac/speculate.h>

enum { PERIOD = 5 };

/* Makes it likely, but not certain, that the text repeats itself: adds to the logit of the id
 * PERIOD ids ago as much as the logits of these models vary. */
static inline bool lean(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                        size_t n) {
    const int64_t id = n >= PERIOD ? ids[n - PERIOD] : 0;
    logits[id] += *(const float *)arg;
    return id < vocabulary;
}

/* A clock that always shows the same time: drafts cost nothing, so as many as possible are made. */
static inline double stand_still(void *arg) {
    (void)arg;
    return 1;
}

static inline gqac_generate_request make_request(gqac_session *session, const int64_t *prompt,
                                                 size_t n, int64_t max_new) {
    gqac_generate_request q;
    gqac_generate_request_init(&q, NULL, session, prompt, n);
    q.max_new = max_new;
    q.clock = stand_still;
    return q;
}

#endif
