/* How many tokens a sequence can have, by the model's tables of positions. */
#ifndef GQAC_RUNTIME_POSITIONS_H
#define GQAC_RUNTIME_POSITIONS_H

#include "runtime/program.h"

/* Tokens that every table of the model has a row for: rotary tables and position embeddings.
 * INT64_MAX: the model has no such table. */
int64_t positions_capacity(const gqac_program *program);

#endif
