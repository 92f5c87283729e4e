/* The maximum number of tokens in a sequence, by the model's tables of positions. */
#ifndef GQAC_RUNTIME_POSITIONS_H
#define GQAC_RUNTIME_POSITIONS_H

#include "runtime/program.h"

/* Returns the number of rows of the smallest table of positions: rotary tables and position
 * embeddings. INT64_MAX: the model has no such table. */
int64_t positions_capacity(const gqac_program *program);

#endif
