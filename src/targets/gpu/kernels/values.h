/* How all kernels read and store values. */

static inline float one_nan(float x) {
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : x;
}

static inline float weight_f32(__global const float *w, size_t i) {
    return w[i];
}
static inline float weight_f16(__global const ushort *w, size_t i) {
    return gqn_f16_to_f32(w[i]);
}
static inline float weight_bf16(__global const ushort *w, size_t i) {
    return gqn_bf16_to_f32(w[i]);
}

/* Types of elements. Rows of caches may have any of them, floats in general only the first
 * three. */
#define F32  0
#define F16  1
#define BF16 2
#define I8   3 /* codes, multiplied by a scale */
#define U4   4 /* two codes a byte, each stored + 8; multiplied by a scale */

/* Element i of x, which has floats of that type. */
static inline float float_at(__global const uchar *x, int type, size_t i) {
    return type == F32   ? weight_f32((__global const float *)x, i)
           : type == F16 ? weight_f16((__global const ushort *)x, i)
                         : weight_bf16((__global const ushort *)x, i);
}

/* x rounded to that type of floats. */
static inline float rounded(float x, int type) {
    return type == F16    ? one_nan(half_to_float(float_to_half(x)))
           : type == BF16 ? gqn_bf16_to_f32(gqn_f32_to_bf16(x))
                          : x;
}

/* Stores element i of that type. */
static inline void put_float(__global uchar *y, int type, size_t i, float x) {
    if (type == F32)
        ((__global float *)y)[i] = x;
    else
        ((__global ushort *)y)[i] = type == F16 ? float_to_half(x) : gqn_f32_to_bf16(x);
}

/* The same, with every NaN replaced by the canonical one. */
static inline void put_element(__global uchar *y, int type, size_t i, float x) {
    put_float(y, type, i, one_nan(x));
}
