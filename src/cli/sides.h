/* The two files of a folder with an encoder and a decoder: which they are, opened, and run. */
#ifndef GQAC_CLI_SIDES_H
#define GQAC_CLI_SIDES_H

#include "cli/cli.h"

enum { SIDES_PATH = 4096 };

typedef enum side_kind {
    SIDE_ENCODER,
    SIDE_DECODER,
    SIDE_LATER, /* a decoder with a past, beside one without */
    SIDE_KINDS
} side_kind;

typedef struct side {
    char path[SIDES_PATH];
    gqac_program *program;
    gqac_context *context;
    const gqac_io *inputs, *outputs;
    int n_inputs, n_outputs;
} side;

/* Does operand 0 have files of that kind and no config of a model folder? A folder that has one of
 * the two is meant to have both. */
bool sides_are(const cli *c);
/* IO that names the file of the two that is missing. */
gqac_status sides_check(cli *c);
bool sides_have(const cli *c, side_kind kind);
gqac_status sides_open(cli *c, side_kind kind, side *s);
void sides_close(side *s);
/* UNSUPPORTED, with the file, when one of the two is not what its name says. */
gqac_status sides_check_kinds(cli *c, const side *encoder, const side *decoder);
int sides_find(const gqac_io *list, int n, const char *name); /* -1: none */
/* Dimension `axis` as the shape of an input tells it: a number or a name. */
const char *sides_dimension(const gqac_io *io, int axis, size_t *length);
/* gqac_run; an error tells the file. */
gqac_status sides_run(cli *c, const side *s, int n_in, const char *const *names,
                      const gqac_tensor *in, int n_out, const char *const *out_names,
                      gqac_tensor *out);

#endif
