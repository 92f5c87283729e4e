/* Messages of a chat while memory runs out: they are complete, or the client gets an error. */
#include <string.h>

#include "base/alloc.h"
#include "serve/serve_impl.h"
#include "unit.h"

static size_t calls, failing; /* of jansson's allocations; failing: which one fails, from 1 */

static void *allocate(size_t bytes) {
    return ++calls == failing ? NULL : malloc(bytes);
}

static const char written[] =
    "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"Be \"},"
    "  {\"type\": \"input_text\", \"text\": \"brief, and name the sources of what you say.\"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\","
    "  \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1, 2]}\"}}]},"
    " {\"role\": \"user\", \"content\": \"Go on.\"}]";

/* jansson reports a syntax error if there is no memory for a key. Arguments then stay text, like
 * arguments that are not JSON. */
static json_t *with_text(const json_t *whole) {
    json_t *copy = json_deep_copy(whole);
    json_t *call = json_array_get(json_object_get(json_array_get(copy, 1), "tool_calls"), 0);
    json_object_set_new(json_object_get(call, "function"), "arguments",
                        json_string("{\"a\": [1, 2]}"));
    return copy;
}

static void test_json(void) {
    json_t *given = json_loads(written, 0, NULL);
    problem p = {0};
    json_t *whole = ask_messages(given, "messages", &p);
    CU_ASSERT_PTR_NOT_NULL_FATAL(whole);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(json_array_get(whole, 0), "content")),
                           "Be brief, and name the sources of what you say.");
    json_t *text = with_text(whole);
    int texts = 0;
    json_set_alloc_funcs(allocate, free);
    for (failing = 1;; failing++) {
        calls = 0;
        p = (problem){0};
        json_t *made = ask_messages(given, "messages", &p);
        if (made && json_equal(made, text))
            texts++;
        else
            CU_ASSERT(made ? json_equal(made, whole) : p.status == 500);
        json_decref(made);
        if (calls < failing)
            break;
    }
    json_set_alloc_funcs(malloc, free);
    CU_ASSERT(failing > 50);
    CU_ASSERT_EQUAL(texts, 1);
    json_decref(text);
    json_decref(whole);
    json_decref(given);
}

static void test_text(void) {
    json_t *given = json_loads(written, 0, NULL);
    for (size_t n = 1; n <= 2; n++) {
        problem p = {0};
        gqac_alloc_fail_at(n, false);
        json_t *made = ask_messages(given, "messages", &p);
        CU_ASSERT(!made && p.status == 500);
        json_decref(made);
    }
    gqac_alloc_fail_at(0, false);
    json_decref(given);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"every allocation of JSON fails once", test_json},
        {"every allocation of a joined text fails once", test_text},
    };
    return unit_run("messages", cases, sizeof cases / sizeof *cases, argc, argv);
}
