/* Runs a table of cases through CUnit's basic interface; see unit.h. */
#include "unit.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With the sanitizers, too, an allocation of an absurd size returns NULL; their libraries call
 * these functions.
 * */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}

int unit_run(const char *suite, const unit_case *cases, size_t count, int argc, char **argv) {
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 2;
    CU_pSuite s = CU_add_suite(suite, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && !strstr(cases[i].title, argv[1]))
            continue;
        if (!s || !CU_add_test(s, cases[i].title, cases[i].run))
            return 2;
    }
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    unsigned run = CU_get_number_of_tests_run();
    unsigned failed = CU_get_number_of_tests_failed();
    for (CU_pFailureRecord f = CU_get_failure_list(); f; f = f->pNext)
        if (f->pTest)
            printf("FAIL %s: %s:%u: %s\n", f->pTest->pName, f->strFileName, f->uiLineNumber,
                   f->strCondition);
    CU_cleanup_registry();
    printf("%u passed, %u failed\n", run - failed, failed);
    return failed || run == 0 ? 1 : 0;
}

bool unit_full(void) {
    const char *full = getenv("GQAC_TEST_FULL");
    return full && *full && strcmp(full, "0") != 0;
}

int unit_count(int quick, int full) {
    const char *text = getenv("GQAC_TEST_CASES");
    return text && atoi(text) > 0 ? atoi(text) : unit_full() ? full : quick;
}

const char *unit_path(const char *relative) {
    static char ring[4][1024];
    static unsigned next;
    char *path = ring[next++ % 4];
    snprintf(path, sizeof ring[0], "%s/%s", GQAC_SOURCE_DIR, relative);
    return path;
}
