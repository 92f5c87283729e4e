/* Calls of tools in answers. An input is a byte that chooses the syntax, then an answer. The calls
 * that are found must not depend on the division of the answer into pieces, and their arguments
 * must be JSON objects. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "llm/calls.h"
#include "llm/llm.h"

/* Texts of templates, one for each syntax. */
static const char *const templates[] = {
    "<tool_call> \"arguments\" </tool_call>", "[TOOL_CALLS] function",
    "to=functions. <|message|> <|call|>", "{\"name\": \" \"parameters\":  tool_calls"};
enum { TEMPLATES = sizeof templates / sizeof *templates };

/* Writes the parts: content unchanged, and each call after a byte 1. */
static void read_parts(gqac_calls *calls, gqac_str *out) {
    gqac_call_part part = {.size = sizeof part};
    while (gqac_calls_next(calls, &part)) {
        if (part.text) {
            gqac_str_append_n(out, part.text, part.length);
            continue;
        }
        json_t *arguments = json_loads(part.arguments, 0, NULL);
        if (!json_is_object(arguments) || !*part.name)
            fuzz_broken("a call without a name or with arguments that are no object");
        json_decref(arguments);
        gqac_str_append_n(out, "\1", 1);
        gqac_str_append(out, part.name);
        gqac_str_append(out, part.arguments);
        gqac_str_append(out, part.id ? part.id : "-");
    }
}

static gqac_status read_answer(const gqac_text *text, const char *answer, size_t size, size_t step,
                               gqac_str *out, gqac_diag *diag) {
    gqac_calls *calls = NULL;
    gqac_status status = gqac_calls_create(text, NULL, &calls, diag);
    for (size_t at = 0; status == GQAC_OK && at < size; at += step) {
        status = gqac_calls_push(calls, answer + at, size - at < step ? size - at : step, diag);
        read_parts(calls, out);
    }
    if (status == GQAC_OK)
        status = gqac_calls_finish(calls, diag);
    read_parts(calls, out);
    gqac_calls_free(calls);
    return fuzz_check(status, diag);
}

static gqac_status run(const uint8_t *data, size_t size) {
    const size_t steps[] = {size, 1, 3, 7};
    gqac_str whole = {0};
    gqac_diag diag = {0};
    if (!size)
        return GQAC_OK;
    const char *template = templates[*data % TEMPLATES];
    const gqac_text text = {.calls = call_syntax_of(template, strlen(template))};
    gqac_status status = GQAC_OK;
    for (int i = 0; i < 4 && status == GQAC_OK; i++) {
        gqac_str out = {0};
        status = read_answer(&text, (const char *)data + 1, size - 1, steps[i], &out, &diag);
        if (i && status == GQAC_OK &&
            (out.length != whole.length ||
             (out.length && memcmp(out.text, whole.text, out.length) != 0)))
            fuzz_broken("the parts depend on how the answer is divided");
        if (i)
            gqac_str_free(&out);
        else
            whole = out;
    }
    gqac_str_free(&whole);
    return status;
}

const fuzz_target fuzz_target_calls = {"calls", run, NULL};
