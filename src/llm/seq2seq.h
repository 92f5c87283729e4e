/* A model with an encoder and a decoder as the files of seq2seq*.c see it. Names are those of
 * exporters (past_key_values.*, present.*) and of `gqac rewrite` (cache_*). */
#ifndef GQAC_LLM_SEQ2SEQ_H
#define GQAC_LLM_SEQ2SEQ_H

#include <gqac/seq2seq.h>

#include "llm/llm.h"

enum { SEQ2SEQ_MOST_EOS = 16 };

/* One of the files. */
typedef struct side {
    const char *path;
    gqac_program *program; /* NULL: there is no such file */
    const gqac_io *inputs, *outputs;
    int n_inputs, n_outputs;
} side;

struct gqac_seq2seq {
    gqac_seq2seq_settings settings;
    int64_t eos[SEQ2SEQ_MOST_EOS];
    side encoder, decoder;
    side later;          /* the decoder with a past, if `decoder` has none */
    const side *with;    /* the decoder whose inputs the caches are: later, or decoder */
    gqac_tensor *caches; /* by input of `with`: type and shape without rows */
    int *first, *next;   /* by input of `with`: the output of `decoder` and of `with` that continues
                            the cache; -1: none, in `first`: the input is no cache */
    gqac_arena *memory;
};

int side_find(const gqac_io *list, int n, const char *name); /* -1: none */
/* Dimension `axis` of a shape in its text form, a number or a name; not NUL-terminated. */
const char *side_dimension(const gqac_io *io, int axis, size_t *length);

/* seq2seq_config.c: the ids that a text begins and ends with. */
gqac_status seq2seq_read_config(const char *folder, gqac_seq2seq *model, gqac_diag *diag);

#endif
