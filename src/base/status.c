/* Names, meanings and exit codes of statuses, made from status.def. */
#include <gqac/status.h>

#include <stddef.h>

typedef struct status_row {
    const char *name;
    const char *meaning;
    int exit_code;
} status_row;

static const status_row rows[] = {
#define GQAC_STATUS(name, exit_code, meaning) {#name, meaning, exit_code},
#include <gqac/status.def>
};

static const status_row unknown = {"UNKNOWN", "not a status of gqac", 4};

static const status_row *row(gqac_status status) {
    return (size_t)status < sizeof rows / sizeof rows[0] ? &rows[status] : &unknown;
}

const char *gqac_status_name(gqac_status status) {
    return row(status)->name;
}

const char *gqac_status_meaning(gqac_status status) {
    return row(status)->meaning;
}

int gqac_status_exit_code(gqac_status status) {
    return row(status)->exit_code;
}
