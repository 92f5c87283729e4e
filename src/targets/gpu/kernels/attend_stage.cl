/* How attend_tensor.cl copies keys and values, converted to factors, to local memory. There is one
 * stage; its next contents are read from global memory before its present contents are multiplied.
 * An eight is eight elements of a key or of its value. */

#define ROWS     ATTEND_MANY_ROWS
#define WARPS    (ATTEND_TENSOR_ITEMS / 32)
#define SHARES   (WARPS * 16 / ROWS)         /* warps with the same rows, but different columns */
#define ITEMS    ATTEND_TENSOR_ITEMS
#define SLOTS    (WARPS * 16)                /* a warp has 16 slots, one for each of its rows */
#define DEPTH    ((ATTEND_SIZE + 31) / 32)   /* blocks of 32 d */
#define COLUMNS  (ATTEND_VALUE_SIZE / 8)     /* blocks of 8 columns */
#define OWN      (COLUMNS / SHARES)          /* blocks multiplied together */
#define TOGETHER (OWN % 4 == 0 ? 4 : OWN % 2 == 0 ? 2 : 1) /* blocks multiplied together */
#define STAGED   (64 / SHARES)               /* keys of a stage */
#define STAGES   (GQAC_KEY_TILE / STAGED)    /* stages of a tile */
#define BLOCKS   (STAGED / 8)                /* blocks of 8 keys in a stage */
#define K_STAGE  (STAGED / 8 * DEPTH * 32)   /* eights of keys in a stage, 16 bytes each */
#define V_STAGE  (STAGED / 32 * COLUMNS * 32)
#define K_EIGHTS (K_STAGE / ITEMS)           /* eights of keys that an item stages, */
#define V_PAIRS  ((V_STAGE / 2 + ITEMS - 1) / ITEMS) /* and pairs of eights of values */
/* eights, at least two, that are read before the stage is multiplied; limited by the registers */
#define AHEAD    (ATTEND_TYPE == F32 ? 4 / SHARES : SHARES == 1 ? 6 : 4)

/* Keys or values of a tile. Stored in local memory because registers are scarce. */
typedef struct attend_source {
    __global const uchar *rows;
    uint step;    /* bytes between keys */
    int from, to; /* keys of the tile that are used; the others are zeros */
    __global const float *scale;
    int scale_step, scale_row; /* between the scales of two elements, and of two keys */
} attend_source;

/* Eight elements in their stored form; only fp32 uses b. */
typedef struct attend_eight {
    uint4 a, b;
} attend_eight;

typedef struct tensor_tile {
    attend_source keys, values;
} tensor_tile;

GQN_FN bool attend_has(__local const attend_source *s, int key) {
    return key >= s->from && key < s->to;
}

GQN_FN attend_eight attend_read(__local const attend_source *s, int key, int d, int size) {
    attend_eight e;
    e.a = e.b = tensor_none();
    if (!attend_has(s, key) || d >= size)
        return e;
    __global const uchar *row = s->rows + (uint)key * s->step;
    if (ATTEND_TYPE == F32) {
        e.a = ((__global const uint4 *)row)[d / 4];
        e.b = ((__global const uint4 *)row)[d / 4 + 1];
    } else if (ATTEND_TYPE <= BF16) {
        e.a = ((__global const uint4 *)row)[d / 8];
    } else if (ATTEND_TYPE == I8) {
        const uint2 codes = ((__global const uint2 *)row)[d / 8];
        e.a.x = codes.x;
        e.a.y = codes.y;
    } else {
        e.a.x = ((__global const uint *)row)[d / 8];
    }
    return e;
}

/* The factors of these elements. */
GQN_FN uint4 attend_factors(__local const attend_source *s, attend_eight e, int key, int d,
                            int size) {
    __global const float *scale = s->scale + key * s->scale_row;
    if (!attend_has(s, key) || d >= size)
        return tensor_none();
    return tensor_eight_of(
        staged_four(e.a, 0, d, ATTEND_TYPE, scale, s->scale_step),
        ATTEND_TYPE == F32 ? staged_four(e.b, 0, d + 4, ATTEND_TYPE, scale, s->scale_step)
                           : staged_four(e.a, 4, d + 4, ATTEND_TYPE, scale, s->scale_step));
}

/* The key and the first element of eight i of the keys; the stage is [keys / 8][DEPTH][32]. */
GQN_FN int attend_key_of(int i) {
    return i / (DEPTH * 32) * 8 + i % 32 / 4;
}
GQN_FN int attend_d_of(int i) {
    return i / 32 % DEPTH * 32 + i % 4 * 8;
}

/* The same for values: the first key of pair i, and the first of its columns. The stage is [keys /
 * 32][COLUMNS][32], and item 4 g + q of a warp has column g of a block, keys 2q and 2q + 1 of each
 * 8. */
GQN_FN int attend_pair_of(int i) {
    return i / (16 * COLUMNS) * 32 + i / 4 % 4 * 8 + i % 4 * 2;
}
GQN_FN int attend_column_of(int i) {
    return i / 16 % COLUMNS * 8;
}

/* Reads the first eights of stage `h` of a tile in advance. */
GQN_FN void attend_look_keys(__local const attend_source *s, int h, attend_eight ahead[AHEAD]) {
    UNROLL for (int n = 0; n < AHEAD && n < K_EIGHTS; n++) {
        const int i = (int)get_local_id(0) + n * ITEMS;
        ahead[n] = attend_read(s, h * STAGED + attend_key_of(i), attend_d_of(i), ATTEND_SIZE);
    }
}
GQN_FN void attend_look_values(__local const attend_source *s, int h, attend_eight ahead[AHEAD]) {
    UNROLL for (int n = 0; n < AHEAD / 2 && n < V_PAIRS; n++) {
        const int i = (int)get_local_id(0) + n * ITEMS;
        const int key = h * STAGED + attend_pair_of(i), d = attend_column_of(i);
        const int size = i < V_STAGE / 2 ? ATTEND_VALUE_SIZE : 0;
        ahead[2 * n] = attend_read(s, key, d, size);
        ahead[2 * n + 1] = attend_read(s, key + 1, d, size);
    }
}

/* Stores the factors of these eights; then reads the other eights and stores their factors. */
GQN_FN void attend_put_keys(__local const attend_source *s, int h, const attend_eight ahead[AHEAD],
                            __local uint4 *stage) {
    UNROLL for (int n = 0; n < AHEAD && n < K_EIGHTS; n++) {
        const int i = (int)get_local_id(0) + n * ITEMS;
        stage[i] = attend_factors(s, ahead[n], h * STAGED + attend_key_of(i), attend_d_of(i),
                                  ATTEND_SIZE);
    }
    ROLLED for (int n = AHEAD; n < K_EIGHTS; n++) {
        const int i = (int)get_local_id(0) + n * ITEMS;
        const int key = h * STAGED + attend_key_of(i), d = attend_d_of(i);
        stage[i] = attend_factors(s, attend_read(s, key, d, ATTEND_SIZE), key, d, ATTEND_SIZE);
    }
}

/* Stores the factors of two keys for the same eight columns, as words that hold both keys. */
GQN_FN void attend_put_pair(__local const attend_source *s, attend_eight even, attend_eight odd,
                            int h, int i, __local uint *stage) {
    const int key = h * STAGED + attend_pair_of(i), d = attend_column_of(i);
    const uint4 a = attend_factors(s, even, key, d, ATTEND_VALUE_SIZE);
    const uint4 b = attend_factors(s, odd, key + 1, d, ATTEND_VALUE_SIZE);
    if (i >= V_STAGE / 2)
        return;
    stage += (i / 16 * 32 + i % 4) * 4 + i / 4 % 4;
    UNROLL for (int j = 0; j < 4; j++) {
        const uint x = word_of(a, j), y = word_of(b, j);
        stage[2 * j * 16] = (x & 0xffffu) | y << 16;
        stage[(2 * j + 1) * 16] = x >> 16 | (y & 0xffff0000u);
    }
}

GQN_FN void attend_put_values(__local const attend_source *s, int h,
                              const attend_eight ahead[AHEAD], __local uint4 *stage) {
    UNROLL for (int n = 0; n < AHEAD / 2 && n < V_PAIRS; n++)
        attend_put_pair(s, ahead[2 * n], ahead[2 * n + 1], h, (int)get_local_id(0) + n * ITEMS,
                        (__local uint *)stage);
    ROLLED for (int n = AHEAD / 2; n < V_PAIRS; n++) {
        const int i = (int)get_local_id(0) + n * ITEMS;
        const int key = h * STAGED + attend_pair_of(i), d = attend_column_of(i);
        const int size = i < V_STAGE / 2 ? ATTEND_VALUE_SIZE : 0;
        attend_put_pair(s, attend_read(s, key, d, size), attend_read(s, key + 1, d, size), h, i,
                        (__local uint *)stage);
    }
}
