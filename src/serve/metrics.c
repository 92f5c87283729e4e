/* See metrics.h. */
#include "serve/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 14, PATHS = 16, STATUSES = 20 };

typedef struct histogram {
    const char *name, *help;
    const double *most; /* of each bucket, ascending; 0 ends the list */
    int64_t counts[BUCKETS + 1];
    double sum;
} histogram;

typedef struct requests {
    const char *path;
    int statuses[STATUSES]; /* 0: unused */
    int64_t counts[STATUSES];
} requests;

struct metrics {
    pthread_mutex_t lock;
    requests requests[PATHS];
    histogram first, next;
};

static const double first_most[BUCKETS + 1] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                               1,     2.5,  5,     10,   30,  60};
static const double next_most[BUCKETS + 1] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                              0.05,   0.1,   0.25,   0.5,   1,    2.5};

metrics *metrics_create(void) {
    metrics *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->first = (histogram){.name = "gqac_time_to_first_token_seconds",
                           .help = "From the arrival of a request to its first token.",
                           .most = first_most};
    m->next = (histogram){.name = "gqac_time_between_tokens_seconds",
                          .help = "From one token of an answer to the next.",
                          .most = next_most};
    return m;
}

void metrics_free(metrics *m) {
    if (m)
        pthread_mutex_destroy(&m->lock);
    free(m);
}

void metrics_count_request(metrics *m, const char *path, int status) {
    int p = 0, k = 0;
    pthread_mutex_lock(&m->lock);
    while (p < PATHS - 1 && m->requests[p].path && strcmp(m->requests[p].path, path) != 0)
        p++;
    requests *r = &m->requests[p];
    r->path = path;
    while (k < STATUSES - 1 && r->statuses[k] && r->statuses[k] != status)
        k++;
    r->statuses[k] = status;
    r->counts[k]++;
    pthread_mutex_unlock(&m->lock);
}

static void observe(metrics *m, histogram *h, double seconds) {
    int i = 0;
    pthread_mutex_lock(&m->lock);
    while (h->most[i] != 0 && seconds > h->most[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

void metrics_first_token(metrics *m, double seconds) {
    observe(m, &m->first, seconds);
}

void metrics_next_token(metrics *m, double seconds) {
    observe(m, &m->next, seconds);
}

void metrics_value(gqac_str *out, const char *name, const char *type, const char *help,
                   double value) {
    gqac_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name,
                    value);
}

static void write_histogram(gqac_str *out, const histogram *h) {
    int64_t sum = 0;
    int i = 0;
    gqac_str_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", h->name, h->help, h->name);
    for (; h->most[i] != 0; i++) {
        sum += h->counts[i];
        gqac_str_printf(out, "%s_bucket{le=\"%g\"} %lld\n", h->name, h->most[i], (long long)sum);
    }
    sum += h->counts[i];
    gqac_str_printf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.17g\n%s_count %lld\n", h->name,
                    (long long)sum, h->name, h->sum, h->name, (long long)sum);
}

void metrics_write(metrics *m, gqac_str *out) {
    pthread_mutex_lock(&m->lock);
    gqac_str_printf(out, "# HELP gqac_requests_total Requests that were answered.\n"
                         "# TYPE gqac_requests_total counter\n");
    for (const requests *r = m->requests; r < m->requests + PATHS && r->path; r++)
        for (int k = 0; k < STATUSES && r->statuses[k]; k++)
            gqac_str_printf(out, "gqac_requests_total{path=\"%s\",status=\"%d\"} %lld\n", r->path,
                            r->statuses[k], (long long)r->counts[k]);
    write_histogram(out, &m->first);
    write_histogram(out, &m->next);
    pthread_mutex_unlock(&m->lock);
}
