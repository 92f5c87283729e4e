/* A model with an encoder and a decoder as the files of seq2seq*.c see it. Names are those of
 * exporters (past_key_values.*, present.*; past_*, present_* of the model builder) and of `gqac
 * rewrite` (cache_*). */
#ifndef GQAC_LLM_SEQ2SEQ_H
#define GQAC_LLM_SEQ2SEQ_H

#include <gqac/seq2seq.h>

#include "llm/llm.h"

enum { SEQ2SEQ_MOST_EOS = 16 };

/* One of the files. */
typedef struct seq2seq_file {
    const char *path;
    gqac_program *program; /* NULL: there is no such file */
    const gqac_io *inputs, *outputs;
    int n_inputs, n_outputs;
} seq2seq_file;

struct gqac_seq2seq {
    gqac_seq2seq_settings settings;
    int64_t eos[SEQ2SEQ_MOST_EOS];
    seq2seq_file encoder, decoder;
    seq2seq_file with_past; /* a decoder of single tokens, where `decoder` has no past */
    gqac_seq2seq_file files[3];
    int n_files;
    const seq2seq_file *step_decoder; /* that of single tokens: with_past if there is one */
    gqac_tensor *caches;              /* by input of step_decoder: type, and shape without rows */
    /* By input of step_decoder: the output of `decoder` (of the prompt) and of step_decoder that
     * is its next content; -1: none. prompt_output -1: the input is not a cache. */
    int *prompt_output, *step_output;
    int *encoder_output; /* the encoder's output that is the input in every call; -1: none */
    bool encodes_caches; /* there is such an output */
    gqac_arena *memory;
};

int seq2seq_find(const gqac_io *list, int n, const char *name); /* -1: none */
/* Dimension `axis` of a shape in its text form, a number or a name; not NUL-terminated. */
const char *seq2seq_dimension(const gqac_io *io, int axis, size_t *length);

/* seq2seq_config.c: the ids that a text begins and ends with. */
gqac_status seq2seq_read_config(const char *folder, gqac_seq2seq *model, gqac_diag *diag);

#endif
