/* The size of JSON before it is parsed. */
#include "base/json.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
    measure("\"[{,\"", 1, 0);                   /* within a string nothing counts */
    measure("[\"\\\"[,\", \"\\\\\", 3]", 4, 1); /* quotes within it */
    measure("\"\\", 1, 0);                      /* ends in the middle */
    measure("]]]}[[", 3, 2);                    /* too many closing brackets hide nothing */
}

static void shorten(const char *text, const char *shorter) {
    char buffer[200];
    snprintf(buffer, sizeof buffer, "%s", text);
    gqac_json_shorten(buffer);
    CU_ASSERT_STRING_EQUAL(buffer, shorter);
}

static void shortened(void) {
    shorten("", "");
    shorten("[0.10000000000000001,true,false,null,17,-3]", "[0.1,true,false,null,17,-3]");
    shorten("{\"0.10000000000000001\":-0.29999999999999999}", "{\"0.10000000000000001\":-0.3}");
    shorten("[\"\\\"0.10000000000000001\",0.20000000000000001]",
            "[\"\\\"0.10000000000000001\",0.2]");
    shorten("[1.0,0.5,100.0,1e20,0.30000000000000004]", "[1.0,0.5,100.0,1e20,0.30000000000000004]");
    shorten("[4.9406564584124654e-324,2.2250738585072014e-308,1.7976931348623157e308]",
            "[5e-324,2.2250738585072014e-308,1.7976931348623157e308]");
    shorten("1.0000000000000001e-05", "1e-05");
    shorten("-0.0", "-0.0");
    shorten("2.0000000000000001e1", "20.0");
    shorten("\"unfinished \\", "\"unfinished \\");
}

/* For random bits: the text is read as the same double, and no shorter text is. */
static void shortest_of_all(void) {
    uint64_t bits = 12345;
    char text[40], fewest[40];
    for (int i = 0; i < 20000; i++) {
        double value;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        uint64_t mixed = bits ^ bits >> 31;
        if (i % 3 == 0)
            mixed &= (uint64_t)0x800fffffffffffff; /* denormal */
        memcpy(&value, &mixed, sizeof value);
        if (i % 3 == 1)
            value = (double)(int64_t)(mixed % 2000000) / 1e4;
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof text, "%.17g", value);
        if (!strpbrk(text, ".e"))
            strcat(text, ".0");
        gqac_json_shorten(text);
        CU_ASSERT(strtod(text, NULL) == value && strpbrk(text, ".e"));
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(fewest, sizeof fewest, "%.*g", digits, value);
            if (strtod(fewest, NULL) == value)
                break;
        }
        CU_ASSERT(strlen(text) <= strlen(fewest) + (strpbrk(fewest, ".e") ? 0 : 2));
    }
}

static void reasons(void) {
    const char *const mark = gqac_json_reason("\xef\xbb\xbf{}", 5, "odd");
    CU_ASSERT_PTR_NOT_NULL(strstr(mark, "byte order mark"));
    CU_ASSERT_STRING_EQUAL(gqac_json_reason("\xef\xbb", 2, "odd"), "odd");
    CU_ASSERT_STRING_EQUAL(gqac_json_reason("{", 1, "odd"), "odd");
}

static const unit_case cases[] = {{"sizes", sizes},
                                  {"numbers with fewer digits", shortened},
                                  {"numbers of random bits", shortest_of_all},
                                  {"reasons", reasons}};

int main(int argc, char **argv) {
    return unit_run("base/json", cases, sizeof cases / sizeof *cases, argc, argv);
}
