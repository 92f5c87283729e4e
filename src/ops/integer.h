/* The weight of linear_integer [K,N], i8: panels of 16 columns, each [ceil(K/4)][16][4 k] with
 * zeros after the last k and column. Its terms, i32 [panels][2][16], hold the zero point of each
 * column and the sum of its codes. Codes that were u8 have 128 subtracted, and so have their zero
 * points; differences stay the same. */
#ifndef GQAC_OPS_INTEGER_H
#define GQAC_OPS_INTEGER_H

#include "ops/work.h"

enum {
    INTEGER_COLUMNS = 16,
    INTEGER_WORD = 4, /* consecutive k of a column that are stored together */
    INTEGER_LINE = INTEGER_COLUMNS * INTEGER_WORD, /* bytes: one word of each column */
    INTEGER_TERMS = 2 * INTEGER_COLUMNS,           /* of a panel */
    INTEGER_MOST_K = 1 << 15, /* 255 * 255 * K and all partial sums stay below 2^31 */
};

static inline int64_t integer_panels(int64_t n) {
    return n / INTEGER_COLUMNS + (n % INTEGER_COLUMNS != 0);
}

static inline int64_t integer_words(int64_t k) {
    return k / INTEGER_WORD + (k % INTEGER_WORD != 0);
}

/* Operands of one call, checked: y [rows,n] = (a [rows,k] - zero of the row) (w - zero of the
 * column). */
typedef struct integer_product {
    int64_t rows, k, n, panels, words;
    bool is_signed;            /* a is i8, else u8 */
    const uint8_t *a, *a_zero; /* a_zero NULL: 0 */
    int64_t zero_rows;         /* zero point of row r: a_zero[r % zero_rows] */
    const int8_t *w;
    const int32_t *terms;
    int32_t *y;
} integer_product;

/* Checks the operands of a linear_integer whose k and n are in range (a_zero NULL: absent), and
 * sets all fields except y, whose shape is that of a, but with n columns. */
gqac_status integer_fit(const op_work *work, int64_t k, int64_t n, const gqac_tensor *a,
                        const gqac_tensor *w, const gqac_tensor *terms, const gqac_tensor *a_zero,
                        integer_product *p);

/* A code of A as an integer. */
static inline int32_t integer_code(const integer_product *p, uint8_t byte) {
    return p->is_signed ? (int8_t)byte : byte;
}

static inline int32_t integer_zero(const integer_product *p, int64_t row) {
    return p->a_zero ? integer_code(p, p->a_zero[row % p->zero_rows]) : 0;
}

#endif
