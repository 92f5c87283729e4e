/* Statuses and diagnostics: names, exit codes, places from the outside in, hostile texts. */
#include <errno.h>
#include <string.h>

#include "base/diag.h"
#include "base/str.h"
#include "unit.h"

static void statuses_have_names_and_exits(void) {
    CU_ASSERT_STRING_EQUAL(gqac_status_name(GQAC_OK), "OK");
    CU_ASSERT_STRING_EQUAL(gqac_status_name(GQAC_INVALID_MODEL), "INVALID_MODEL");
    CU_ASSERT_STRING_EQUAL(gqac_status_meaning(GQAC_MISMATCH), "a comparison failed");
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_OK), 0);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_MISMATCH), 1);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_USAGE), 2);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_UNSUPPORTED), 3);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_CAPACITY), 4);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_IO), 5);
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_ABSENT), 77);
    for (int i = 0; i < GQAC_STATUS_COUNT; i++) {
        CU_ASSERT(strlen(gqac_status_name((gqac_status)i)) > 0);
        CU_ASSERT(strlen(gqac_status_meaning((gqac_status)i)) > 0);
        CU_ASSERT((gqac_status_exit_code((gqac_status)i) == 0) == (i == GQAC_OK));
    }
    CU_ASSERT_STRING_EQUAL(gqac_status_name((gqac_status)12345), "UNKNOWN");
    CU_ASSERT_EQUAL(gqac_status_exit_code(GQAC_STATUS_COUNT), 4);
}

static gqac_status inner(gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "axis is %d", 7);
    gqac_diag_where(diag, "op %s", "Add");
    gqac_diag_rule(diag, "-r <= axis < r");
    gqac_diag_hint(diag, "export it again");
    return GQAC_UNSUPPORTED;
}

static gqac_status outer(gqac_diag *diag) {
    gqac_status status = inner(diag);
    gqac_diag_where(diag, "node '%s'", "/a");
    gqac_diag_where(diag, "model.onnx");
    GQAC_TRY(status);
    return GQAC_OK;
}

static void places_go_outside_in(void) {
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(outer(&diag), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(diag.status, GQAC_UNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(diag.what, "axis is 7");
    CU_ASSERT_STRING_EQUAL(diag.where, "model.onnx, node '/a', op Add");
    CU_ASSERT_STRING_EQUAL(diag.rule, "-r <= axis < r");
    CU_ASSERT_STRING_EQUAL(diag.hint, "export it again");
    CU_ASSERT_EQUAL(gqac_diag_oom(&diag, "a graph"), GQAC_NO_MEMORY);
    CU_ASSERT_STRING_EQUAL(diag.what, "out of memory for a graph");
    CU_ASSERT_STRING_EQUAL(diag.where, "");
    CU_ASSERT_STRING_EQUAL(diag.rule, "");
}

static gqac_status fails(gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_IO, "no %s", "file");
}

static void null_diag_is_fine(void) {
    CU_ASSERT_EQUAL(outer(NULL), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(fails(NULL), GQAC_IO);
    CU_ASSERT_EQUAL(gqac_diag_oom(NULL, "x"), GQAC_NO_MEMORY);
}

static void ends_in_dots(const char *text) {
    size_t length = strlen(text);
    CU_ASSERT(length >= 3 && strcmp(text + length - 3, "...") == 0);
    CU_ASSERT_TRUE(gqac_utf8_valid(text, length));
}

static void long_texts_are_cut(void) {
    char text[3000];
    gqac_diag diag = {0};
    /* a three-byte character crosses the point of truncation at one of the offsets */
    for (int offset = 0; offset < 3; offset++) {
        memset(text, 'x', sizeof text);
        for (size_t i = (size_t)offset; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        text[sizeof text - 4] = '\0';
        gqac_diag_set(&diag, GQAC_IO, "%s", text);
        ends_in_dots(diag.what);
        CU_ASSERT(strlen(diag.what) > sizeof diag.what - 8);
        gqac_diag_where(&diag, "%s", text);
        ends_in_dots(diag.where);
        gqac_diag_where(&diag, "outer");
        CU_ASSERT_EQUAL(strncmp(diag.where, "outer, ", 7), 0);
        ends_in_dots(diag.where);
        gqac_diag_hint(&diag, "%s", text);
        ends_in_dots(diag.hint);
        gqac_diag_rule(&diag, "%s", text);
        ends_in_dots(diag.rule);
    }
}

static void exact_fit_is_not_cut(void) {
    gqac_diag diag = {0};
    char text[sizeof diag.rule];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gqac_diag_rule(&diag, "%s", text);
    CU_ASSERT_STRING_EQUAL(diag.rule, text);
}

static void hostile_bytes_become_marks(void) {
    gqac_diag diag = {0};
    gqac_diag_set(&diag, GQAC_IO, "a\x1b[31mb\xff\x01%s\x7f\xc2\x9b", "\xc3\xa9");
    CU_ASSERT_STRING_EQUAL(diag.what, "a?[31mb??\xc3\xa9???");
}

static void errors_have_texts(void) {
    CU_ASSERT_STRING_EQUAL(gqac_errno_text(ENOENT), "No such file or directory");
    CU_ASSERT(gqac_errno_text(-1) && *gqac_errno_text(-1)); /* not an errno */
    CU_ASSERT(gqac_errno_text(1 << 20) && *gqac_errno_text(1 << 20));
}

static const unit_case cases[] = {
    {"statuses have names and exits", statuses_have_names_and_exits},
    {"places go outside in", places_go_outside_in},
    {"a NULL diag is fine", null_diag_is_fine},
    {"long texts are cut", long_texts_are_cut},
    {"an exact fit is not cut", exact_fit_is_not_cut},
    {"hostile bytes become marks", hostile_bytes_become_marks},
    {"errors have texts", errors_have_texts},
};

int main(int argc, char **argv) {
    return unit_run("base/status", cases, sizeof cases / sizeof cases[0], argc, argv);
}
