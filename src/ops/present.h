/* The keys or values of the past followed by those of the new tokens: the op concat_past_present,
 * for its eval and for kernels that compute the new rows in place. */
#ifndef GQAC_OPS_PRESENT_H
#define GQAC_OPS_PRESENT_H

#include "ops/lengths.h"

typedef struct present_rows {
    const unsigned char *past; /* NULL: none */
    unsigned char *present;    /* [B,heads,capacity] rows; equal to past when it is overwritten */
    const int32_t *past_len, *new_len;
    int64_t heads, past_rows, new_rows, capacity;
    size_t row; /* bytes */
} present_rows;

/* Operands of a concat_past_present; past NULL: none. Only type and shape of the new rows are
 * read. */
typedef struct present_operands {
    const gqac_tensor *past, *fresh, *past_len, *new_len, *total;
} present_operands;

/* Checks the operands. The output is [B,heads,capacity,D]. */
gqac_status present_fit(const op_work *work, const present_operands *o, present_rows *c);
/* Sets the memory of the output, which may be that of past if the capacities are equal. */
gqac_status present_put(const op_work *work, present_rows *c, void *memory);
/* Writes all rows of a head except the new ones: those of the past, then zeros. */
void present_keep(const present_rows *c, int64_t b, int64_t head);
/* Address of new row i of a head. */
static inline unsigned char *present_row(const present_rows *c, int64_t b, int64_t head,
                                         int64_t i) {
    return c->present + (size_t)((b * c->heads + head) * c->capacity + c->past_len[b] + i) * c->row;
}

#endif
