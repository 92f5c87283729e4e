/* Shared by Conv and ConvInteger: attributes, shapes. */
#ifndef GQAC_OPS_CONV_H
#define GQAC_OPS_CONV_H

#include "ops/shared.h"

enum { CONV_X, CONV_W, CONV_SPACE = GQAC_MAX_RANK - 2 };

extern const ir_attr_spec conv_attrs[];

/* One spatial axis. */
typedef struct conv_axis {
    int64_t in, out, taps, stride, dilation, pad; /* pad: at the start */
} conv_axis;

/* Entry i of an attribute; absent: `fallback`. */
int64_t conv_entry(const ir_node *node, const char *name, int i, int64_t fallback);
/* Attributes have an entry for each of n spatial axes, pads two. */
gqac_status conv_check_lists(const ir_node *node, int n, gqac_diag *diag);
/* Sets all fields of axis i of n but in and taps; false when the taps do not fit. */
bool conv_place(const ir_node *node, int i, int n, conv_axis *a);
gqac_status conv_verify(const ir_node *node, gqac_diag *diag);
/* The type of the result, of elements `dtype`; checks the shapes of X and W. */
gqac_status conv_infer(ir_node *node, gqac_dtype dtype, gqac_diag *diag);
bool conv_mixes(const ir_node *node);

#endif
