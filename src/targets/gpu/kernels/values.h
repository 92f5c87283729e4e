/* Values as all kernels read and store them. */

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
