/* The constants of the numerics contract: where a reduction is divided, and into how many lanes.
 * The arithmetic of every output element is a function of absolute positions, model constants and
 * these numbers, never of how tokens were split into calls, of threads, or of the instruction set.
 * They are part of the profile id, which artefacts, saved sequences and cache keys contain, so that
 * results of different profiles are never mixed. A test build makes the key tile and split small,
 * so that short sequences cross many tiles. The constants are plain macros, for kernels in any
 * dialect. */
#ifndef GQAC_NUMERICS_CONTRACT_H
#define GQAC_NUMERICS_CONTRACT_H

/* Matmul: K is divided at multiples of this; each piece is one fma chain, and pieces are added in
 * ascending order. */
#define GQAC_K_PIECE 512
/* Attention: keys are divided at absolute multiples of these, from position 0. */
#ifndef GQAC_KEY_TILE
#define GQAC_KEY_TILE 64
#endif
#ifndef GQAC_KEY_SPLIT
#define GQAC_KEY_SPLIT 512
#endif
/* Products of bf16 factors: factors below this become zeros. Then sums of products are multiples of
 * 2^-126, so no result depends on how an instruction treats subnormals. */
#define GQAC_BF16_LEAST 0x1p-56f
/* Row reductions: this number of lanes, folded 8, 4, 2, 1. */
#define GQAC_LANES 16
/* Version of the contract and of math.h; increment it when any result may change a bit. */
#define GQAC_NUMERICS_VERSION 1

#if GQAC_KEY_TILE < 1 || GQAC_KEY_SPLIT % GQAC_KEY_TILE != 0
#error "the key split must be a multiple of the key tile"
#endif

#define GQAC_PROFILE_SIZE 96

#if !defined(__OPENCL_VERSION__) && !defined(__CUDACC__)
/* Writes the profile id of a target and a --math mode, e.g. "gqac-n1/ref/model/k512.t64.s512.l16".
 * Names are truncated to 24 characters. */
void gqac_numerics_profile(char out[static GQAC_PROFILE_SIZE], const char *target,
                           const char *math);
#endif

#endif
