/* Factors of products in tensor cores, and these products, for --math bf16 on CUDA. language.h
 * declares the operations of tensor cores.
 *
 * A block is 16 rows of factors and 32 k, by 8 columns. A warp multiplies it in two products: first
 * the k with k % 8 < 4, then the others. Its factors are stored in the order in which the items of
 * a warp load them, 128 bits each. Of columns, item 4 g + q has column g, k 8q to 8q + 7. Of rows,
 * each product has a part: item 4 g + q has rows g and g + 8, k 8q to 8q + 3 in the first part and
 * 8q + 4 to 8q + 7 in the second, as mma_bf16 requires. */

GQN_FN uint tensor_factor(float x) {
    const bool is_zero = (gqn_as_u32(x) & 0x7fffffffu) < gqn_as_u32(GQAC_BF16_LEAST);
    return is_zero ? 0u : (uint)float_to_bf16(x);
}

GQN_FN uint tensor_pair(float even, float odd) {
    return tensor_factor(even) | tensor_factor(odd) << 16;
}

GQN_FN uint4 tensor_eight_of(float4 low, float4 high) {
    return UINT4(tensor_pair(low.x, low.y), tensor_pair(low.z, low.w), tensor_pair(high.x, high.y),
                 tensor_pair(high.z, high.w));
}

/* The parts of a block of rows for an item that has eight factors of row g and eight of row g +
 * 8. */
GQN_FN uint4 tensor_first_part(uint4 low, uint4 high) {
    return UINT4(low.x, high.x, low.y, high.y);
}
GQN_FN uint4 tensor_second_part(uint4 low, uint4 high) {
    return UINT4(low.z, high.z, low.w, high.w);
}

/* The two products of a block; each takes the part of the rows that belongs to it. */
GQN_FN float4 tensor_first(uint4 part, uint4 w, float4 sum) {
#ifdef CONTROL_TENSOR_FRAGMENT /* negative control: k of the two halves of a product are swapped */
    return mma_bf16(part.z, part.w, part.x, part.y, w.x, w.y, sum);
#else
    return mma_bf16(part.x, part.y, part.z, part.w, w.x, w.y, sum);
#endif
}
GQN_FN float4 tensor_second(uint4 part, uint4 w, float4 sum) {
    return mma_bf16(part.x, part.y, part.z, part.w, w.z, w.w, sum);
}

GQN_FN float4 tensor_block(uint4 first, uint4 second, uint4 w, float4 sum) {
    return tensor_second(second, w, tensor_first(first, w, sum));
}

GQN_FN uint4 tensor_none(void) {
    return UINT4(0u, 0u, 0u, 0u);
}

GQN_FN float4 tensor_zero(void) {
    return FLOAT4(0.0f, 0.0f, 0.0f, 0.0f);
}
