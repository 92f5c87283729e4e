/* The same attention as attend_tensor, for tiles of many rows and heads of at most 128 elements.
 * attend_prepare computes the factors of all keys and values once, not for each tile of rows, and
 * stores them in the order in which items load them: for each tile of keys and each of its heads
 * K_STAGE eights of keys, and then V_STAGE of values. attend_prompt copies them to local memory
 * while it multiplies others. */

#if ATTEND_SIZE <= 128 && ATTEND_VALUE_SIZE <= 128

GQN_FN size_t prompt_at(const attend_shape *shape, int sequence, int tile, int kv_head) {
    const size_t at = (size_t)sequence * (size_t)shape->prompt + (size_t)(tile / GQAC_KEY_TILE);
    return (at * (size_t)shape->kv_heads + (size_t)kv_head) * (K_STAGE + V_STAGE);
}

/* The grid is [Hkv, tiles of keys]. Each has in the list its sequence, its first key, and the range
 * of its keys that are used; factors of the others are zeros. */
__kernel GROUP_ALONE(ITEMS) void attend_prepare(ATTEND_ARGUMENTS, __global uint4 *factors) {
    SHARED tensor_tile tile;
    __global const uchar *slabs[SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                          s8, s9, s10, s11, s12, s13, s14, s15};
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0);
    __global const int *of = lists + shape.units + 4 * (long)get_group_id(1);
    const int scale_row = blocks.k_scales_at ? shape.kv_heads : 0;
    if (item == 0)
        tensor_open(attend_tile_at(&shape, &blocks, slabs, lists, k_rows, v_rows, of[0], kv_head,
                                   of[1], row_bytes(ATTEND_SIZE, ATTEND_TYPE),
                                   row_bytes(ATTEND_VALUE_SIZE, ATTEND_TYPE)),
                    &blocks, scale_row, k_scale + blocks.scale_step * kv_head * ATTEND_SIZE,
                    v_scale + blocks.scale_step * kv_head * ATTEND_VALUE_SIZE, of[2], of[3],
                    &tile);
    barrier(CLK_LOCAL_MEM_FENCE);
    factors += prompt_at(&shape, of[0], of[1], kv_head);
    UNROLL for (int n = 0; n < K_EIGHTS; n++) {
        const int i = item + n * ITEMS, key = attend_key_of(i), d = attend_d_of(i);
        factors[i] = attend_factors(&tile.keys, attend_read(&tile.keys, key, d, ATTEND_SIZE), key,
                                    d, ATTEND_SIZE);
    }
    factors += K_STAGE;
    UNROLL for (int n = 0; n < V_PAIRS; n++) {
        const int i = item + n * ITEMS, key = attend_pair_of(i), d = attend_column_of(i);
        const int size = i < V_STAGE / 2 ? ATTEND_VALUE_SIZE : 0;
        attend_put_pair(&tile.values, attend_read(&tile.values, key, d, size),
                        attend_read(&tile.values, key + 1, d, size), 0, i, (uint *)factors);
    }
}

/* Copies n eights to local memory. */
GQN_FN void prompt_copy(__local uint4 *to, __global const uint4 *from, const int n) {
    UNROLL for (int i = 0; i < n; i += ITEMS)
        if (n % ITEMS == 0 || i + (int)get_local_id(0) < n)
            copy_16(to + i + (int)get_local_id(0), from + i + (int)get_local_id(0));
    copy_commit();
}

/* tensor_weights_of, if all keys of the tile are visible to all rows of the warp, and scores have
 * neither softcap nor bias. */
GQN_FN void prompt_weights(const attend_shape *shape, int tile, int own,
                           __local tensor_rows *rows, const float4 s[8], uint p[8][2]) {
    UNROLL for (int i = 0; i < 2; i++) {
        float x[16];
        uint own_p[8];
        UNROLL for (int t = 0; t < 16; t++)
            x[t] = shape->scale * tensor_of(s[t / 2], i, t % 2);
        tensor_weights(true, rows, own + 8 * i, tile, x, own_p);
        UNROLL for (int j = 0; j < 8; j++)
            p[j][i] = own_p[j];
    }
}

/* The grid is [Hkv, units]. */
__kernel GROUP_ALONE(ITEMS) void attend_prompt(ATTEND_ARGUMENTS, __global const uint4 *factors) {
    SHARED uint4 keys[K_STAGE];
    SHARED uint4 values[V_STAGE];
    SHARED tensor_rows rows;
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0);
    const int lane = item % 32, warp = item / 32, own = warp * 16 + lane / 4;
    const int column = lane % 4 * 2;
    __global const int *unit = lists + shape.units + 7 * (long)get_group_id(1);
    const int sequence = unit[3], begin = unit[4], end = unit[5];
    float4 acc[OWN];
    uint4 first[DEPTH], second[DEPTH]; /* factors of queries */

    int tile = begin / GQAC_KEY_TILE * GQAC_KEY_TILE;
    prompt_copy(keys, factors + prompt_at(&shape, sequence, tile, kv_head), K_STAGE);
    if (item < SLOTS)
        tensor_open_rows(&shape, unit, lists, kv_head, item, &rows);
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int b = 0; b < DEPTH; b++) {
        uint4 eights[2];
        tensor_queries(&rows, q, shape.q_type, unit[2], own, b * 32 + lane % 4 * 8, eights);
        first[b] = tensor_first_part(eights[0], eights[1]);
        second[b] = tensor_second_part(eights[0], eights[1]);
    }
    const tensor_range range = tensor_range_of(&rows, warp);
    UNROLL for (int n = 0; n < OWN; n++)
        acc[n] = tensor_zero();

    ROLLED for (; tile < end; tile += GQAC_KEY_TILE) {
        const int next = tile + GQAC_KEY_TILE, split = tile / GQAC_KEY_SPLIT * GQAC_KEY_SPLIT;
        const bool used = range.first < next && range.last > tile; /* by the warp */
        const bool all = ALIKE(range.latest <= tile && range.least >= next);
        __global const uint4 *from = factors + prompt_at(&shape, sequence, tile, kv_head);
        float4 s[8];
        uint p[8][2];
        prompt_copy(values, from + K_STAGE, V_STAGE);
        UNROLL for (int j = 0; j < 8; j++) {
            s[j] = tensor_zero();
            p[j][0] = p[j][1] = 0u;
        }
        copy_wait(1);
        barrier(CLK_LOCAL_MEM_FENCE); /* the keys are there */
        UNROLL for (int b = 0; used && b < DEPTH; b++) {
            UNROLL for (int j0 = 0; j0 < 8; j0 += 4) {
                uint4 w[4];
                UNROLL for (int j = 0; j < 4; j++)
                    w[j] = keys[((j0 + j) * DEPTH + b) * 32 + lane];
                UNROLL for (int j = 0; j < 4; j++)
                    s[j0 + j] = tensor_first(first[b], w[j], s[j0 + j]);
                UNROLL for (int j = 0; j < 4; j++)
                    s[j0 + j] = tensor_second(second[b], w[j], s[j0 + j]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* the keys have been read */
        if (next < end)
            prompt_copy(keys, factors + prompt_at(&shape, sequence, next, kv_head), K_STAGE);
        else
            copy_commit();
        if (used) {
            if (all && shape.softcap == 0.0f && shape.bias_columns == 0)
                prompt_weights(&shape, tile, own, &rows, s, p);
            else
                tensor_weights_of(&shape, bias, tile, own, &rows, s, p);
            UNROLL for (int n = 0; n < OWN; n++)
                acc[n] = tensor_scaled(acc[n], rows.alpha[own], rows.alpha[own + 8]);
        }
        copy_wait(1);
        barrier(CLK_LOCAL_MEM_FENCE); /* the values are there */
        UNROLL for (int b = 0; used && b < 8; b += 4) {
            const uint4 low = tensor_rows_of(p, b), high = tensor_rows_of(p, b + 2);
            __local const uint4 *at = values + b / 4 * COLUMNS * 32 + lane;
            if (all)
                tensor_weigh(low, high, at, acc);
            else
                tensor_weigh_some(&rows, own, tile, tile + b * 8 + lane % 4 * 2, low, high, at,
                                  acc);
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* the values have been read */
        if (next % GQAC_KEY_SPLIT != 0 && next < end)
            continue;
        tensor_end_split(&shape, unit, kv_head, own, split, acc, column, &rows, parts, y);
        UNROLL for (int n = 0; n < OWN; n++)
            acc[n] = tensor_zero();
    }
    if (unit[6] < 0)
        tensor_close(&shape, &rows, own, unit[2], sink, column, y);
}

#endif
