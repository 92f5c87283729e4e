/* The profile id: a line of text that names every choice on which the bits of a result depend.
 * Cached data may be reused if and only if the two texts are equal. */
#include "numerics/contract.h"

#include <stdio.h>

void gqac_numerics_profile(char out[static GQAC_PROFILE_SIZE], const char *target,
                           const char *math) {
    snprintf(out, GQAC_PROFILE_SIZE, "gqac-n%d/%.24s/%.24s/k%d.t%d.s%d.l%d", GQAC_NUMERICS_VERSION,
             target, math, GQAC_K_PIECE, GQAC_KEY_TILE, GQAC_KEY_SPLIT, GQAC_LANES);
}
