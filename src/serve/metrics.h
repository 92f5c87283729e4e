/* Counters and histograms of the server, as Prometheus reads them. Several threads may use them at
 * the same time. */
#ifndef GQAC_SERVE_METRICS_H
#define GQAC_SERVE_METRICS_H

#include <gqac/schedule.h>

#include "base/str.h"

typedef struct metrics metrics;
metrics *metrics_create(void); /* NULL: out of memory */
void metrics_free(metrics *m);

/* `path` must be a constant text. There may be at most 16 different ones. */
void metrics_count_request(metrics *m, const char *path, int status);
void metrics_first_token(metrics *m, double seconds); /* since the request arrived */
void metrics_next_token(metrics *m, double seconds);  /* since the token before */
void metrics_write(metrics *m, gqac_str *out);

/* A line for a value, after its type: "counter", "gauge". */
void metrics_value(gqac_str *out, const char *name, const char *type, const char *help,
                   double value);

#endif
