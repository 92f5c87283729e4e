/* Writing log lines; which there are is said in gqac/log.h. */
#ifndef GQAC_BASE_LOG_H
#define GQAC_BASE_LOG_H

#include <gqac/log.h>
#include <stdbool.h>

/* Does anyone want lines of this level? Worth asking before one is costly to make. */
bool gqac_log_wants(const gqac_log *log, gqac_log_level level);
/* A line of at most 500 bytes; longer ones are cut. */
__attribute__((format(printf, 3, 4))) void gqac_log_line(const gqac_log *log, gqac_log_level level,
                                                         const char *fmt, ...);

#endif
