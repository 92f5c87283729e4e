/* Grammars and JSON Schemas. An input begins with a schema if its first byte is '{', with tools if
 * it is '[', otherwise with a grammar; then come a NUL and a text to read with it. The text is then
 * continued at random: in every state, some byte must be accepted. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "text/grammar/automaton.h"

enum { STEPS = 200, TRIES = 256 };

/* Follows a byte that fits, searching from `chance` on; false: the text must end here. */
static gqac_status step(automaton *a, uint32_t *state, uint32_t chance, bool *more,
                        gqac_diag *diag) {
    *more = false;
    for (uint32_t i = 0; i < TRIES && !*more; i++) {
        uint32_t next = AUTOMATON_DEAD;
        GQAC_TRY(automaton_next(a, *state, (uint8_t)(chance + i), &next, diag));
        *more = next != AUTOMATON_DEAD;
        *state = *more ? next : *state;
    }
    if (!*more && !a->states[*state].may_end)
        fuzz_broken("a text that cannot be completed");
    return GQAC_OK;
}

static gqac_status read_on(automaton *a, uint32_t state, gqac_diag *diag) {
    uint32_t chance = 1;
    bool more = true;
    for (int i = 0; i < STEPS && more; i++) {
        chance = chance * 1664525U + 1013904223U;
        GQAC_TRY(step(a, &state, chance >> 8, &more, diag));
        if (i % 50 == 49) {
            const bool may_end = a->states[state].may_end;
            GQAC_TRY(automaton_collect(a, &state, 1, diag));
            if (a->states[state].may_end != may_end)
                fuzz_broken("a state that is kept has changed");
        }
    }
    return GQAC_OK;
}

static gqac_status use(const grammar *g, const uint8_t *text, size_t length, gqac_diag *diag) {
    automaton a;
    uint32_t state = AUTOMATON_DEAD, next = AUTOMATON_DEAD;
    GQAC_TRY(automaton_open(&a, g, diag));
    gqac_status status = automaton_start(&a, &state, diag);
    if (status == GQAC_OK && state == AUTOMATON_DEAD)
        fuzz_broken("a grammar without a text");
    for (size_t i = 0; i < length && status == GQAC_OK; i++) {
        status = automaton_next(&a, state, text[i], &next, diag);
        if (status != GQAC_OK || next == AUTOMATON_DEAD)
            break;
        state = next;
    }
    if (status == GQAC_OK)
        status = read_on(&a, state, diag);
    automaton_close(&a);
    return status;
}

static gqac_status compile(const uint8_t *data, const fuzz_parts *p, grammar **g, gqac_diag *diag) {
    static const grammar_calls forms[] = {{.begin = "",
                                           .before = "<c>{\"name\": \"",
                                           .middle = "\", \"arguments\": ",
                                           .after = "}</c>",
                                           .between = ",",
                                           .end = "",
                                           .marker = "<c>"},
                                          {.begin = "",
                                           .before = "<c>to=",
                                           .middle = "\xff<m>\xff",
                                           .after = "",
                                           .end = "",
                                           .marker = "to=",
                                           .header_begins = {"<c>", "\xff<s>\xff"},
                                           .header_end = "\xff<m>\xff",
                                           .middles = {" json\xff<m>\xff", "<c>"}}};
    const grammar_choice choice = {NULL, true, p->n_first % 2 == 1};
    const char kind = p->n_first ? (char)*data : '\0';
    if (kind == '[')
        return grammar_from_tools(p->first, p->n_first, &forms[p->n_first / 2 % 2], &choice, g,
                                  diag);
    return kind == '{' ? grammar_from_schema(p->first, p->n_first, g, diag)
                       : grammar_from_rules(p->first, p->n_first, g, diag);
}

static gqac_status run(const uint8_t *data, size_t size) {
    const fuzz_parts p = fuzz_split(data, size);
    gqac_diag diag = {0};
    grammar *g = NULL;
    gqac_status status = compile(data, &p, &g, &diag);
    status = fuzz_check(status, &diag);
    if (status == GQAC_OK)
        status = fuzz_check(use(g, (const uint8_t *)p.second, p.n_second, &diag), &diag);
    grammar_free(g);
    return status;
}

const fuzz_target fuzz_target_constraint = {"constraint", run, NULL};
