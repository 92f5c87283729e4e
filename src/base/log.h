/* Writing log lines. gqac/log.h lists what is logged at which level. */
#ifndef GQAC_BASE_LOG_H
#define GQAC_BASE_LOG_H

#include <gqac/log.h>
#include <stdbool.h>

/* True if lines of this level are logged. To be called before composing a line that is costly to
 * make. */
bool gqac_log_wants(const gqac_log *log, gqac_log_level level);
/* Logs a line, cut to 500 bytes. */
__attribute__((format(printf, 3, 4))) void gqac_log_line(const gqac_log *log, gqac_log_level level,
                                                         const char *fmt, ...);

#endif
