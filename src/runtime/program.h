/* A program: the claimed and planned graph of one model on one target, ready to run. Immutable.
 *
 * Inputs of a program for sequences besides token ids:
 *
 *   gqac.past_len    i32 [B], tokens of each sequence before the call
 *   gqac.new_len     i32 [B], new tokens of each sequence
 *   position_ids     i64, in the shape of the ids, or several such planes; if the model has it
 *   gqac.positions   i64, in the shape of the ids; if `ragged` added it for rotary ops
 *   gqac.total_len   i64, the length that chooses a LongRoPE table
 *   gqac.logit_rows  i64 [K], indices of the rows of logits that are wanted
 *
 * Ids are [1,N] if rows are packed (pass `ragged`), else [B,S]. An `If` whose condition depends on
 * gqac.total_len alone is a *guard*: its condition must be the same for all rows of a call and in
 * all calls of a sequence. */
#ifndef GQAC_RUNTIME_PROGRAM_H
#define GQAC_RUNTIME_PROGRAM_H

#include <gqac/gqac.h>
#include <pthread.h>

#include "base/budget.h"
#include "ir/ir.h"
#include "kv/kv.h"
#include "targets/target.h"

enum { PROGRAM_MAX_GUARDS = 32 };

/* Indices of graph inputs with a special meaning; -1: absent. */
typedef struct program_roles {
    int input_ids, position_ids, positions, past_len, new_len, total_len, logit_rows;
    int position_planes; /* first dimension of position_ids [planes,B,S]; 0: they are [B,S] */
    int64_t embedding; /* E: the input at input_ids is inputs_embeds [B,S,E]; 0: it is token ids */
    int logits;        /* result index; -1: none */
    bool packed;       /* ids are [1,N] */
    bool last_only;    /* logits are always [B,1,V] */
    bool one_token;    /* the file declares [B,1] ids */
    bool every_row; /* it is certain that logits have a row for each id (with logit_rows: for each
                       wanted row); false: perhaps only for the last id */
} program_roles;

/* The result of saved_fingerprint, computed only once because it reads all weights. */
typedef struct program_fingerprint {
    pthread_mutex_t lock;
    bool known;
    unsigned char digest[32];
} program_fingerprint;

struct gqac_program {
    gqac_arena *arena; /* holds this program and its module */
    ir_module *module;
    const gqac_target *target;
    const void *target_state; /* target_call.state */
    void *backing;            /* mapped files that hold the constants */
    void (*release)(void *backing);
    bool (*whole)(const void *backing); /* false: a file was truncated */
    bool stateless;
    int n_values;            /* ir_value.id are 0..n_values-1, constants included */
    const ir_value **values; /* by ir_value.id */
    const ir_node **last;    /* by value number: the last reader of a value with a slot, see
                                ir_life_end */
    int n_slots;             /* number of slots of the main graph's values (see `plan`) */
    int most_outputs;        /* the largest number of outputs of a node */
    program_roles roles;
    int n_kv;
    kv_slot *kv;
    gqac_kv_pair *kv_pairs;
    kv_pool *pool;
    gqac_budget *budget;             /* for contexts and sequences of the program; never NULL */
    gqac_snapshot *baked;            /* the prefix of the artefact; NULL: there is none */
    const gqac_sequence *baked_rows; /* its sequence */
    int64_t baked_threshold;         /* gqac_program_rope_threshold */
    int n_guards;
    ir_node *guards[PROGRAM_MAX_GUARDS];
    int n_inputs, n_outputs;
    gqac_io *inputs, *outputs;
    int n_mixing;
    const gqac_mixing *mixing;
    gqac_mixing padded_by; /* why rows are not packed; op NULL: they are */
    int64_t most_tokens;   /* see positions_capacity */
    bool limited;          /* most_tokens is the limit `context` */
    program_fingerprint *fingerprint;
    double tolerance; /* see gqac_program_tolerance */
    char profile[96];
    gqac_log log; /* all zeros: no log */
};

/* Makes a program from a module after the whole pipeline: finds roles, KV slots (from the kv_state
 * nodes) and guards, opens the device of the options if the target has devices, and binds the
 * kernels. On success the program owns the arena; the caller then sets its backing. */
gqac_status program_create(gqac_arena *arena, ir_module *module, const gqac_target *target,
                           const gqac_options *options, gqac_program **program, gqac_diag *diag);
/* Frees what a program owns outside its arena and backing. */
void program_close(gqac_program *program);

/* Describes a value as a gqac_io, with texts in the arena; false: out of memory. */
bool program_describe(gqac_arena *arena, const ir_value *value, const char *name, gqac_io *io);

#endif
