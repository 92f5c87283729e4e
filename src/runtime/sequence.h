/* A sequence: its KV rows, its token ids, and the choice of rope tables.
 *
 * In a program with states (kv.h), a sequence has states only for some lengths: rewind goes back to
 * one of these, and the next step computes the missing tokens again from their ids. */
#ifndef GQAC_RUNTIME_SEQUENCE_H
#define GQAC_RUNTIME_SEQUENCE_H

#include "runtime/program.h"

/* Receives reports of what steps commit to a sequence and to its forks; all zeros: there is no
 * receiver. */
typedef struct sequence_watch {
    /* After a step that appended `count` tokens, or computed them again. `count` excludes drafts;
     * `accepted` is the number of drafts of the previous step that were not taken back. */
    void (*committed)(void *arg, const gqac_sequence *sequence, int64_t count, int64_t accepted);
    void (*forked)(void *arg); /* a fork reports to it too, from now on */
    void (*freed)(void *arg, const gqac_sequence *sequence); /* before it is freed */
    void *arg;
} sequence_watch;

struct gqac_sequence {
    const gqac_program *program;
    kv_sequence *kv;
    int64_t final_length; /* as declared; 0: not declared */
    int64_t pinned;       /* gqac.total_len for which the guards were computed; 0: no step yet */
    unsigned guards;      /* bit g: the condition of guard g is true */
    bool marked;          /* while a step checks its items: one of them has this sequence */
    bool imported;    /* rows were imported, loaded or shared, and guards are not computed yet */
    int64_t missing;  /* last tokens of the sequence whose rows must be computed again */
    int64_t given;    /* number of imported tokens, whose ids are unknown */
    int64_t computed; /* tokens that steps have computed, those computed again included */
    int64_t drafts;   /* last tokens of the sequence that the last step computed as drafts */
    sequence_watch watch;
    int64_t *ids, ids_capacity; /* ids of the tokens after those, and capacity of the array */
};

/* USAGE: the program has no sequences, because it is stateless or has no state. */
gqac_status sequence_check_program(const gqac_program *program, gqac_diag *diag);
/* OUT_OF_RANGE: a capacity or a final length is negative. */
gqac_status sequence_check_options(const gqac_sequence_options *options, gqac_diag *diag);
/* Bytes of a slot with that many tokens, canonical; false: overflow. */
bool sequence_slot_bytes(const kv_slot *slot, int64_t tokens, size_t *bytes);
/* gqac_sequence_import of `length` tokens, for tensors that do not determine this number; -1: the
 * number of rows of the tensors. */
gqac_status sequence_import(gqac_sequence *sequence, int64_t length, int n,
                            const char *const *names, const gqac_tensor *tensors, gqac_diag *diag);
/* Sets the token ids of a sequence all of whose tokens were imported. NO_MEMORY. */
gqac_status sequence_know_ids(gqac_sequence *sequence, const int64_t *ids, gqac_diag *diag);
/* Fills an empty sequence with the first `length` tokens of `rows`, whose ids are `ids`, by sharing
 * their blocks. `rows` has the kind of the sequence, or one with the same blocks. `pinned` is that
 * of the sequence that made the rows. NO_MEMORY, CAPACITY: it is still empty. */
gqac_status sequence_share(gqac_sequence *sequence, const kv_sequence *rows, int64_t length,
                           const int64_t *ids, int64_t pinned, gqac_diag *diag);
/* gqac_sequence_fork, but what steps commit to the fork is not reported to the watch. */
gqac_status sequence_fork_unwatched(const gqac_sequence *sequence, gqac_sequence **fork,
                                    gqac_diag *diag);
/* Makes a snapshot, which owns the sequence from then on; no step may extend the sequence.
 * NO_MEMORY: the sequence is freed. */
gqac_status snapshot_make(gqac_sequence *sequence, gqac_snapshot **snapshot, gqac_diag *diag);
/* Grows the capacity to the ids of `length` tokens. */
gqac_status sequence_reserve_ids(gqac_sequence *sequence, int64_t length, gqac_diag *diag);

#endif
