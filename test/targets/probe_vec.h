/* The operations of targets/cpu/level/vec.h as functions on memory: probe_vec.c is compiled once
 * for each level, and test_vec.c compares the results of the levels. A family has one signature;
 * the rows of all levels are in the same order, because they come from one source. */
#ifndef GQAC_TEST_TARGETS_PROBE_VEC_H
#define GQAC_TEST_TARGETS_PROBE_VEC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct probe_float {
    const char *name;
    void (*run)(float *out, const float *a, const float *b, const float *c); /* 16 each */
    bool exact; /* NaN payloads must be equal, too */
} probe_float;

typedef struct probe_int {
    const char *name;
    void (*run)(int32_t *out, const int32_t *a, const int32_t *b, const int32_t *c);
} probe_int;

typedef struct probe_mask {
    const char *name;
    uint32_t (*run)(const float *a, const float *b);
} probe_mask;

typedef struct vec_probe {
    const char *level;
    const probe_float *floats;
    const probe_int *ints;
    const probe_mask *masks;
    int n_floats, n_ints, n_masks;
    void (*load_n)(float *out, const float *p, int n);
    void (*store_n)(float *p, const float *x, int n);
    void (*load_f16)(float *out, const uint16_t *p);
    void (*load_bf16)(float *out, const uint16_t *p);
    void (*select)(float *out, uint32_t bits, const float *yes, const float *no);
    void (*shift)(int32_t *out, const int32_t *x, int n);
    void (*of_ints)(float *out, const int32_t *x);
    uint32_t (*bits)(uint32_t bits);
    uint32_t (*range)(int from, int to);
    float (*fold)(const float *x);
    float (*fold_max)(const float *x);
    void (*to_i8)(int8_t *out, const float *x);
    /* Eight nibbles_add from zero, then nibbles_end: u and s have 8 * 16 words. */
    void (*nibbles)(int32_t *out, const int32_t *u, const int32_t *s, bool times16);
    /* Transposes sixteen rows of 16, 20 apart, to columns 24 apart. */
    void (*transpose)(float *to, const float *from);
} vec_probe;

#endif
