/* Keys or values of past and new tokens one behind another: the op concat_past_present, for its
 * eval and for kernels that make the new rows in their place. */
#ifndef GQAC_OPS_PRESENT_H
#define GQAC_OPS_PRESENT_H

#include "ops/lengths.h"

typedef struct present_rows {
    const unsigned char *past; /* NULL: none */
    unsigned char *present;    /* [B,heads,capacity] rows; past, where it is written in place */
    const int32_t *past_len, *new_len;
    int64_t heads, past_rows, new_rows, capacity;
    size_t row; /* bytes */
} present_rows;

/* Operands of a concat_past_present; past NULL: none. Of the new rows only type and shape are
 * looked at. */
typedef struct present_operands {
    const gqac_tensor *past, *fresh, *past_len, *new_len, *total;
} present_operands;

/* Checks them. The output is [B,heads,capacity,D]. */
gqac_status present_fit(const op_work *work, const present_operands *o, present_rows *c);
/* Its memory; which may be that of past when there is room. */
gqac_status present_put(const op_work *work, present_rows *c, void *memory);
/* Everything of a head but its new rows: those of the past, and zeros where there are none. */
void present_keep(const present_rows *c, int64_t b, int64_t head);
/* Where new row i of a head goes. */
static inline unsigned char *present_row(const present_rows *c, int64_t b, int64_t head,
                                         int64_t i) {
    return c->present + (size_t)((b * c->heads + head) * c->capacity + c->past_len[b] + i) * c->row;
}

#endif
