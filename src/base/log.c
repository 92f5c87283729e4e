/* Writing log lines; see log.h. */
#include "base/log.h"

#include <stdarg.h>

#include "base/diag.h"

bool gqac_log_wants(const gqac_log *log, gqac_log_level level) {
    return log && log->line && level <= log->level;
}

void gqac_log_line(const gqac_log *log, gqac_log_level level, const char *fmt, ...) {
    char text[500];
    va_list args;
    if (!gqac_log_wants(log, level))
        return;
    va_start(args, fmt);
    gqac_clean_vprintf(text, sizeof text, false, fmt, args);
    va_end(args);
    log->line(log->arg, level, text);
}
