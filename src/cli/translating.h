/* `generate` for a folder with an encoder and a decoder: the encoder runs once, then the decoder
 * token by token with whatever caches it has. */
#ifndef GQAC_CLI_TRANSLATING_H
#define GQAC_CLI_TRANSLATING_H

#include "cli/generating.h"

/* Reads --prompt, --ids or --features, generates, and prints as `generate` does. */
gqac_status translating_run(generating *g);

#endif
