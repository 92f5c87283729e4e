/* genai_config.json; then the same bytes as generation_config.json, whose rules are applied. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "llm/rules.h"

/* Positions at the beginning of an answer, in it and at its end. */
static void apply(const gqac_token_rules *rules) {
    enum { IDS = 300 };
    float logits[IDS];
    double score[IDS];
    int64_t history[] = {0, 1, 2, 0, 1, 2, 6, 7};
    const size_t most = sizeof history / sizeof *history;
    for (int i = 0; i < IDS; i++)
        logits[i] = (float)i;
    for (size_t n = 0; n <= most; n++) {
        const rules_place at = {history, n, 1, most};
        for (int i = 0; i < IDS; i++)
            score[i] = (double)logits[i];
        rules_apply(rules, &at, logits, score, IDS);
        for (int i = 0; i < IDS; i++)
            if (score[i] == score[i] && score[i] != (double)logits[i])
                fuzz_broken("a rule has changed a score");
    }
}

static gqac_status run_rules(const char *json, size_t size) {
    gqac_diag diag = {0};
    gqac_text_settings settings = genai_config_defaults;
    gqac_token_rules *rules = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    const gqac_attachment file = {"generation_config.json", json, size};
    const gqac_status status =
        fuzz_check(hf_config_read(&file, arena, &settings, true, &rules, &diag), &diag);
    if (status == GQAC_OK) {
        rules_set_ends(rules, settings.eos, settings.n_eos);
        (void)rules_check(rules, 300, &diag);
        apply(rules);
    }
    gqac_arena_free(arena);
    return status;
}

/* OK if the bytes are valid as one of the two files. */
static gqac_status run(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    gqac_text_settings settings = genai_config_defaults;
    const char *decoder = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = 0;
    gqac_status status = GQAC_LIMIT;
    if (size <= FOLDER_CONFIG_BYTES)
        status =
            fuzz_check(genai_config_read(copy, size, arena, &settings, &decoder, &diag), &diag);
    for (int i = 0; status == GQAC_OK && i < settings.n_io_names; i++)
        if (!settings.io_names[i].name || !settings.io_names[i].file_name)
            fuzz_broken("a name of an input is missing");
    gqac_arena_free(arena);
    if (size <= FOLDER_CONFIG_BYTES && run_rules(copy, size) == GQAC_OK)
        status = GQAC_OK;
    free(copy);
    return status;
}

const fuzz_target fuzz_target_config = {"config", run, NULL};
