/* The size of JSON before it is parsed. */
#include "base/json.h"

#include <string.h>

#include "unit.h"

static void measure(const char *text, size_t values, size_t depth) {
    const gqac_json_size size = gqac_json_measure(text, strlen(text));
    CU_ASSERT_EQUAL(size.values, values);
    CU_ASSERT_EQUAL(size.depth, depth);
}

static void sizes(void) {
    measure("", 1, 0);
    measure("12", 1, 0);
    measure("[[1, 2], {\"a\": {}}]", 1 + 4 + 2, 3);
    measure("\"[{,\"", 1, 0);                   /* in a text nothing counts */
    measure("[\"\\\"[,\", \"\\\\\", 3]", 4, 1); /* quotes within it */
    measure("\"\\", 1, 0);                      /* ends in the middle */
    measure("]]]}[[", 3, 2);                    /* what is closed too often hides nothing */
}

static void reasons(void) {
    const char *const mark = gqac_json_reason("\xef\xbb\xbf{}", 5, "odd");
    CU_ASSERT_PTR_NOT_NULL(strstr(mark, "byte order mark"));
    CU_ASSERT_STRING_EQUAL(gqac_json_reason("\xef\xbb", 2, "odd"), "odd");
    CU_ASSERT_STRING_EQUAL(gqac_json_reason("{", 1, "odd"), "odd");
}

static const unit_case cases[] = {{"sizes", sizes}, {"reasons", reasons}};

int main(int argc, char **argv) {
    return unit_run("base/json", cases, sizeof cases / sizeof *cases, argc, argv);
}
