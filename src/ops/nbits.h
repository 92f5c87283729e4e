/* The quantised weights of linear_nbits, for the op and for the packer.
 *
 * A panel has 64 columns. Codes are 32-bit words [panels][words][64]. A word holds 32 / bits
 * consecutive k of one column, arranged so that one shift and one mask extract four codes as bytes:
 * field f of byte b is k0 + 4 f + b. Scales and zero points are [panels][blocks][64]. Columns from
 * n on and codes from k on are zeros. */
#ifndef GQAC_OPS_NBITS_H
#define GQAC_OPS_NBITS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NBITS_COLUMNS = 64,
    NBITS_WORD_BYTES = 4 * NBITS_COLUMNS, /* a word of every column of a panel */
    NBITS_MIN_BLOCK = 16,
    NBITS_MAX_BLOCK = 512, /* a block lies in one piece of the sum over k */
};

typedef struct nbits_shape {
    int64_t k, n, block, blocks, panels, words; /* words of a column */
    int bits;
} nbits_shape;

/* k, n in [1, INT32_MAX]; block a power of two in [16, 4096]; bits 2, 4 or 8. */
static inline nbits_shape nbits_shape_of(int64_t k, int64_t n, int bits, int64_t block) {
    nbits_shape s = {.k = k, .n = n, .block = block, .bits = bits};
    s.blocks = (k + block - 1) / block;
    s.panels = (n + NBITS_COLUMNS - 1) / NBITS_COLUMNS;
    s.words = s.blocks * (block * bits / 32);
    return s;
}

/* True if activations are quantised to int8. There is no such form with float zero points, or with
 * 2-bit codes in blocks of 16. */
static inline bool nbits_int8(int64_t level, int bits, int64_t block, bool float_zero) {
    return level == 4 && !float_zero && (bits != 2 || block > 16);
}

static inline uint32_t nbits_swap(uint32_t x, uint32_t mask, int distance) {
    const uint32_t t = (x ^ x >> distance) & mask;
    return x ^ t ^ t << distance;
}

/* Packs a word of MatMulNBits (code i in the bits from i * bits), and unpacks it. */
static inline uint32_t nbits_pack_word(uint32_t x, int bits) {
    if (bits == 4)
        return nbits_swap(nbits_swap(x, 0x0000ff00u, 8), 0x00f000f0u, 4);
    if (bits == 2) /* a 4 x 4 matrix of codes, transposed */
        return nbits_swap(nbits_swap(x, 0x00cc00ccu, 6), 0x0000f0f0u, 12);
    return x;
}

static inline uint32_t nbits_unpack_word(uint32_t x, int bits) {
    if (bits == 4)
        return nbits_swap(nbits_swap(x, 0x00f000f0u, 4), 0x0000ff00u, 8);
    return nbits_pack_word(x, bits);
}

#endif
