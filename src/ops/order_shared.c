/* Keys by which TopK, ArgMax and ArgMin order elements: an integer for each element, of any type.
 * Equal elements have equal keys; -0 equals +0, and all NaN are equal. */
#include "ops/elementwise.h"
#include "ops/reduction.h"

#include <string.h>

#include "ops/kernel.h"

/* The bits of a float order as its magnitude; a sign reverses that order, and so does `least`. */
OP_BODY void keys_f32_body(const float *restrict x, int64_t n, const op_order *order,
                           int64_t *restrict keys) {
    const int32_t flip = order->least ? -1 : 0, nan = order->nan_first ? INT32_MAX : INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = gqn_as_u32(x[i]);
        const int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
        const int32_t sign = (bits >> 31 ? -1 : 0) ^ flip;
        const int32_t key = (magnitude ^ sign) - sign;
        keys[i] = magnitude > (int32_t)GQN_INF_BITS ? nan : key;
    }
}
OP_KERNEL(keys_f32, (const float *x, int64_t n, const op_order *order, int64_t *keys),
          (x, n, order, keys))

static int64_t key_f64(double x, const op_order *order) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t magnitude = bits & INT64_MAX;
    if (x != x)
        return order->nan_first ? INT64_MAX : INT64_MIN;
    return (bits < 0) != order->least ? -magnitude : magnitude;
}

static void keys_int(const gqac_tensor *x, int64_t first, int64_t n, int64_t stride,
                     const op_order *order, int64_t *keys) {
    const uint64_t flip =
        (x->dtype == GQAC_U64 ? (uint64_t)1 << 63 : 0) ^ (order->least ? ~(uint64_t)0 : 0);
    for (int64_t i = 0; i < n; i++)
        keys[i] = (int64_t)((uint64_t)op_get_i64(x, first + i * stride) ^ flip);
}

void op_order_keys(const gqac_tensor *x, int64_t first, int64_t n, int64_t stride,
                   const op_order *order, int64_t *keys) {
    float buffer[OP_SPAN];
    switch (op_carrier_of(x->dtype)) {
    case OP_AS_F32:
        if (x->dtype != GQAC_F32 || stride != 1)
            op_gather_f32(x, first, n, stride, buffer);
        keys_f32(x->dtype != GQAC_F32 || stride != 1 ? buffer : (const float *)x->data + first, n,
                 order, keys);
        break;
    case OP_AS_F64:
        for (int64_t i = 0; i < n; i++)
            keys[i] = key_f64(op_get_f64(x, first + i * stride), order);
        break;
    default:
        keys_int(x, first, n, stride, order, keys);
    }
}

OP_BODY void greatest_body(const int64_t *restrict keys, int64_t n, int64_t *restrict most) {
    int64_t best = keys[0];
    for (int64_t i = 1; i < n; i++)
        best = keys[i] > best ? keys[i] : best;
    *most = best;
}
OP_KERNEL(greatest, (const int64_t *keys, int64_t n, int64_t *most), (keys, n, most))

int64_t op_order_greatest(const int64_t *keys, int64_t n) {
    int64_t most;
    greatest(keys, n, &most);
    return most;
}
