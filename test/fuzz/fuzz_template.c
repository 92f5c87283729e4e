/* Chat templates. An input is a template, a NUL, and the variables as JSON; if these are missing or
 * not an object, a fixed conversation is used. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "llm/llm.h"

static const char fixed[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "\" Hi \\u00e9 \"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,true]}}}]}],\"add_generation_prompt\":true,"
    "\"tools\":[{\"name\":\"f\"}],\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"n\":-3}";

static gqac_status run(const uint8_t *data, size_t size) {
    const fuzz_parts p = fuzz_split(data, size);
    gqac_diag diag = {0};
    jinja *template = NULL;
    json_t *variables = p.second ? json_loadb(p.second, p.n_second, 0, NULL) : NULL;
    gqac_str out = {0};
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_loads(fixed, 0, NULL);
    }
    gqac_status status = fuzz_check(jinja_create(p.first, p.n_first, &template, &diag), &diag);
    if (status == GQAC_OK)
        status = fuzz_check(jinja_render(template, variables, &out, &diag), &diag);
    gqac_str_free(&out);
    jinja_free(template);
    json_decref(variables);
    return status;
}

const fuzz_target fuzz_target_template = {"template", run, NULL};
