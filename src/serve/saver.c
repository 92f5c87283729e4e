/* See saver.h. */
#include "serve/saver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING = 64 };

typedef struct item {
    gqac_sequence *sequence;
    char *tenant;
} item;

struct saver {
    gqac_store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    item waiting[WAITING]; /* a ring */
    int first, n;
    bool closing;
    saver_counts counts;
};

static void *run(void *arg) {
    saver *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->n && !s->closing)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->n)
            break;
        const item next = s->waiting[s->first];
        s->first = (s->first + 1) % WAITING;
        s->n--;
        pthread_mutex_unlock(&s->lock);
        const bool saved = gqac_store_save(s->store, next.tenant, next.sequence, NULL) == GQAC_OK;
        gqac_sequence_free(next.sequence);
        free(next.tenant);
        pthread_mutex_lock(&s->lock);
        s->counts.saved += saved;
        s->counts.unsaved += !saved;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

gqac_status saver_create(gqac_store *store, saver **out, gqac_diag *diag) {
    saver *s = calloc(1, sizeof *s);
    if (s) {
        s->store = store;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
        if (pthread_create(&s->thread, NULL, run, s) == 0) {
            *out = s;
            return GQAC_OK;
        }
        free(s);
    }
    *out = NULL;
    *diag = (gqac_diag){.status = GQAC_NO_MEMORY, .index = -1};
    snprintf(diag->what, sizeof diag->what, "out of memory for a thread that saves prefixes");
    return GQAC_NO_MEMORY;
}

void saver_free(saver *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

void saver_add(saver *s, const char *tenant, const gqac_sequence *sequence) {
    item added = {.tenant = strdup(tenant)};
    if (added.tenant && gqac_sequence_fork(sequence, &added.sequence, NULL) != GQAC_OK)
        added.sequence = NULL;
    pthread_mutex_lock(&s->lock);
    const bool taken = added.sequence && s->n < WAITING;
    if (taken)
        s->waiting[(s->first + s->n++) % WAITING] = added;
    s->counts.unsaved += !taken;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (taken)
        return;
    gqac_sequence_free(added.sequence);
    free(added.tenant);
}

saver_counts saver_get_counts(saver *s) {
    pthread_mutex_lock(&s->lock);
    const saver_counts counts = s->counts;
    pthread_mutex_unlock(&s->lock);
    return counts;
}
