/* Printing results as JSON. */
#include <math.h>

#include "cli/cli.h"

json_t *cli_real_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_text_json(const char *text) {
    json_t *whole = json_string(text);
    return whole ? whole : json_string(cli_shown(text).s);
}

void cli_print_json(json_t *value) {
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(value);
}

gqac_status cli_print_json_line(cli *c, json_t *value) {
    if (!value)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    json_dumpf(value, stdout, JSON_COMPACT); /* 17 digits: no bit of a number is lost */
    putchar('\n');
    json_decref(value);
    if (fflush(stdout) != 0)
        return cli_fail(c, GQAC_IO, "cannot write to standard output");
    return GQAC_OK;
}
