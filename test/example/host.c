/* The loop of a server, without sockets: requests join while others run, share steps, and stream
 * their ids. A client that disconnects in the middle of its prompt ends the step at once; only the
 * request with a wrong id is refused. All bits are those of a run alone. */
#include <gqac/gqac.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 6, CHUNK = 32, ANSWER = 8, MOST = 256 };
enum { GONE = 2, WRONG = 4 }; /* the request whose client disconnects, and the one with an error */

typedef struct request {
    gqac_sequence *sequence;           /* NULL: it has not joined, or has ended */
    int64_t ids[MOST], prompt, n, fed; /* ids of the prompt, then of the answer */
    char last[65];                     /* digest of the last row of logits */
    const char *end;                   /* how it ended */
} request;

typedef struct host {
    atomic_int joined;
    int ended;
    gqac_program *program;
    gqac_context *context;
    request requests[REQUESTS];
    gqac_diag diag;
    char error[sizeof "refused: " + sizeof((gqac_diag *)0)->what]; /* of request WRONG */
} host;

static void *clients(void *arg) {
    for (int i = 0; i < REQUESTS; i++)
        atomic_fetch_add(&((host *)arg)->joined, 1);
    return NULL;
}

/* Called while a step runs: a server would poll its sockets here. */
static bool hang_up(void *arg) {
    const request *r = &((host *)arg)->requests[GONE];
    return r->sequence && r->fed >= 2 * CHUNK;
}

static void end(host *h, request *r, const char *how) {
    gqac_sequence_free(r->sequence);
    r->sequence = NULL;
    r->end = how;
    h->ended++;
}

static void must(const host *h, gqac_status status) {
    if (status != GQAC_OK) {
        fprintf(stderr, "host: %s\n", h->diag.what);
        exit(1);
    }
}

/* Fills the items of the next step, and `who` with the request of each; returns their number. */
static int gather(host *h, gqac_step_item *items, int *who) {
    int n = 0;
    for (request *r = h->requests, *stop = r + atomic_load(&h->joined); r < stop; r++) {
        if (r->end)
            continue;
        if (!r->sequence)
            must(h, gqac_sequence_create(h->program, NULL, &r->sequence, &h->diag));
        const int64_t left = r->n - r->fed, count = left < CHUNK ? left : CHUNK;
        who[n] = (int)(r - h->requests);
        items[n++] = (gqac_step_item){.size = sizeof *items,
                                      .sequence = r->sequence,
                                      .tokens = r->ids + r->fed,
                                      .count = count,
                                      .n_logits = count == left};
    }
    return n;
}

/* Reads the logits of item i and chooses the next id. */
static void take(host *h, request *r, int i, int64_t count) {
    int64_t rows = 0, vocabulary = 0, best = 0;
    const float *logits = gqac_context_logits(h->context, i, &rows, &vocabulary);
    r->fed += count;
    if (!logits)
        return;
    for (int64_t v = 1; v < vocabulary; v++)
        best = logits[v] > logits[best] ? v : best;
    r->ids[r->n++] = best; /* a server would stream it */
    gqac_digest(logits, (size_t)vocabulary * sizeof *logits, r->last);
    if (r->n == r->prompt + ANSWER)
        end(h, r, "answered");
}

static void turn(host *h) {
    gqac_step_item items[REQUESTS];
    int who[REQUESTS], n = gather(h, items, who);
    const gqac_status status = n ? gqac_step(h->context, n, items, &h->diag) : GQAC_OK;
    if (status == GQAC_ABORTED) /* every sequence is unchanged, and the others continue */
        end(h, &h->requests[GONE], "cancelled: its client disconnected");
    else if (status != GQAC_OK && h->diag.index >= 0) {
        snprintf(h->error, sizeof h->error, "refused: %s", h->diag.what);
        end(h, &h->requests[who[h->diag.index]], h->error); /* a server would send it */
    } else
        must(h, status);
    for (int i = 0; status == GQAC_OK && i < n; i++)
        take(h, &h->requests[who[i]], i, items[i].count);
}

/* True if the answer equals that of the prompt alone, in one piece. */
static bool same_alone(host *h, const request *r) {
    request alone = {.n = r->prompt, .prompt = r->prompt}, *a = &alone;
    memcpy(a->ids, r->ids, (size_t)r->prompt * sizeof *a->ids);
    must(h, gqac_sequence_create(h->program, NULL, &a->sequence, &h->diag));
    while (!a->end) {
        const int64_t n = a->n - a->fed;
        must(h, gqac_sequence_append(h->context, a->sequence, a->ids + a->fed, n, 1, &h->diag));
        take(h, a, 0, n);
    }
    return !memcmp(a->ids, r->ids, sizeof a->ids) && !strcmp(a->last, r->last);
}

int main(int argc, char **argv) {
    static host h;
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = hang_up, .arg = &h};
    pthread_t thread;
    int right = 0;
    for (int i = 0; i < REQUESTS; i++) {
        h.requests[i].n = h.requests[i].prompt = 5 + 37 * i;
        for (int64_t k = 0; k < h.requests[i].n; k++)
            h.requests[i].ids[k] = (k * 31 + i * 7 + 3) % 200;
    }
    h.requests[WRONG].ids[40] = -1; /* not an id of the vocabulary */
    if (argc != 2 || gqac_program_open(argv[1], NULL, &h.program, &h.diag) ||
        gqac_context_create(h.program, 2, &h.context, &h.diag) ||
        gqac_context_set_monitor(h.context, &monitor, NULL, &h.diag) ||
        pthread_create(&thread, NULL, clients, &h))
        return fprintf(stderr, "usage: host MODEL %s\n", h.diag.what), 2;
    while (h.ended < REQUESTS) /* a server would sleep while there is no request */
        turn(&h);
    pthread_join(thread, NULL);
    for (int i = 0; i < REQUESTS; i++) {
        const request *r = &h.requests[i];
        const bool same = r->n == r->prompt + ANSWER && same_alone(&h, r);
        right += same;
        printf("request %d: prompt of %lld, %lld tokens computed, %s%s\n", i, (long long)r->prompt,
               (long long)r->fed, r->end, same ? " with the bits of a run alone" : "");
    }
    printf("%d of %d answered with the bits of a run alone\n", right, REQUESTS);
    gqac_context_free(h.context);
    gqac_program_free(h.program);
    return right != REQUESTS - 2;
}
