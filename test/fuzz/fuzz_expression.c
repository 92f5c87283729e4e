/* Regular expressions of pre-tokenizers. An input is an expression, a NUL, and a text to search; if
 * the text is missing or is not UTF-8, a fixed one is searched. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/str.h"
#include "text/expressions/pattern.h"
#include "text/unicode.h"

static gqac_status search(const pattern *p, const char *text, size_t length, gqac_diag *diag) {
    pattern_scratch *scratch = pattern_scratch_create(p);
    pattern_match m = {0};
    gqac_status status = GQAC_OK;
    pattern_scratch_admit(scratch, length);
    for (size_t from = 0; from <= length;) {
        status = fuzz_check(pattern_find(p, scratch, text, length, from, &m, diag), diag);
        if (status != GQAC_OK || !m.found)
            break;
        if (m.begin < from || m.end < m.begin || m.end > length)
            fuzz_broken("a match outside of the text");
        int32_t c;
        from = m.end > from    ? m.end
               : from < length ? from + unicode_read(text + from, length - from, &c)
                               : length + 1;
    }
    pattern_scratch_free(scratch);
    return status;
}

static gqac_status run(const uint8_t *data, size_t size) {
    static const char fixed[] =
        "Hello  World's 12345 tests,\r\n\t don't  \xc3\xa9\xe4\xbd\xa0 aaaaab!";
    const fuzz_parts parts = fuzz_split(data, size);
    const char *text = parts.second ? parts.second : fixed;
    size_t n = parts.second ? parts.n_second : sizeof fixed - 1;
    gqac_diag diag = {0};
    pattern *p = NULL;
    if (n > 4096 || !gqac_utf8_valid(text, n)) {
        text = fixed;
        n = sizeof fixed - 1;
    }
    gqac_status status = fuzz_check(pattern_create(parts.first, parts.n_first, &p, &diag), &diag);
    if (status == GQAC_OK)
        status = search(p, text, n, &diag);
    pattern_free(p);
    return status;
}

const fuzz_target fuzz_target_expression = {"expression", run, NULL};
