/* Past tensors of sequences: their sizes, and copies by export and import. */
#ifndef GQAC_CLI_PASTS_H
#define GQAC_CLI_PASTS_H

#include "cli/cli.h"

/* Bytes of the past tensor of a pair after `length` tokens. */
size_t pasts_bytes(const gqac_kv_pair *pair, int64_t length);
/* The past tensor of a pair, [1,heads,rows,head_size]; gqac_tensor_free frees it. On failure data
 * is NULL. */
gqac_status pasts_export(cli *c, const gqac_sequence *sequence, const gqac_kv_pair *pair,
                         gqac_tensor *past);
/* Imports all past tensors of a sequence into n empty sequences of the program. */
gqac_status pasts_copy(cli *c, const gqac_program *program, const gqac_sequence *from, int n,
                       gqac_sequence *const *to);

#endif
