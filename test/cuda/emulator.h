/* Runs CUDA kernels on a CPU, for tests: it defines for a C compiler what kernels/language.h
 * defines for a compiler of CUDA C. A test includes it, then the headers of numerics and the files
 * of kernels/, and runs a kernel with `emulate`. The items of a group are contexts of one thread,
 * which switches between them at barriers and where a warp meets, so that every run is the same.
 *
 * Local memory is NaN before a group runs. A group whose items do not all reach a barrier ends the
 * program. Each kernel runs in two ways, and must compute the same bits: in the first, items run
 * from the first to the last, and asynchronous copies happen at once; in the second, items run from
 * the last to the first, and copies happen when they are waited for. */
#ifndef GQAC_TEST_CUDA_EMULATOR_H
#define GQAC_TEST_CUDA_EMULATOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "numerics/contract.h"
#include "numerics/convert.h"
#include "numerics/dialect.h"
#include "numerics/math.h"

/* ---- what language.h declares ------------------------------------------------- */

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef struct __attribute__((aligned(8))) float2 {
    float x, y;
} float2;
typedef struct __attribute__((aligned(16))) float4 {
    float x, y, z, w;
} float4;
typedef struct __attribute__((aligned(8))) uint2 {
    uint x, y;
} uint2;
typedef struct __attribute__((aligned(16))) uint4 {
    uint x, y, z, w;
} uint4;

#define SHARED static __attribute__((section("group_memory"), aligned(16)))
extern char group_memory_begin[] __asm__("__start_group_memory");
extern char group_memory_end[] __asm__("__stop_group_memory");

#define __kernel static __attribute__((unused, noinline)) /* for emulated_compile.c */
#define __global
#define __local
#define GROUP(n)
#define GROUP_ALONE(n)
#define MOST(n)
#define UNROLL
#define UNROLL_2
#define UNROLL_8
#define CUDA_UNROLL
#define IN_TURN
#define ROLLED
#define LENGTHS              1
#define FLOAT4(x, y, z, w)   ((float4){(x), (y), (z), (w)})
#define UINT4(x, y, z, w)    ((uint4){(x), (y), (z), (w)})
#define half_to_float(x)     gqn_f16_to_f32(x)
#define float_to_half(x)     gqn_f32_to_f16(x)
#define float_to_bf16(x)     gqn_f32_to_bf16(x)
#define floats_to_bf16(x, y) ((uint)gqn_f32_to_bf16(x) | (uint)gqn_f32_to_bf16(y) << 16)

static inline __attribute__((unused)) float4 fma_row(float a, float4 b, float4 c) {
    return FLOAT4(gqn_fma(a, b.x, c.x), gqn_fma(a, b.y, c.y), gqn_fma(a, b.z, c.z),
                  gqn_fma(a, b.w, c.w));
}

static inline __attribute__((unused)) int dot_bytes(int a, uint b, int c) {
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int)(b >> i & 255u);
    return c;
}
#define atomic_inc(p) ((*(p))++)

/* ---- items -------------------------------------------------------------------- */

enum { EMULATED_ITEMS = 512, EMULATED_WARP = 32, EMULATED_STACK = 128 << 10, EMULATED_COPIES = 64 };

typedef struct emulated_copy {
    void *to;
    const void *from;
    size_t size;
    bool there;
    int set;
} emulated_copy;

typedef struct emulated_item {
    ucontext_t context;
    bool ended;
    emulated_copy copies[EMULATED_COPIES];
    int n_copies, set;
} emulated_item;

/* A point where items meet: the last one to arrive lets all continue. */
typedef struct emulated_meeting {
    int arrived;
    unsigned round;
} emulated_meeting;

/* What the items of a warp exchange when they meet: operands and results of a product, or a number
 * of each item. There are two sets, because items may still read the previous one. */
typedef struct emulated_product {
    uint a[EMULATED_WARP][4], b[EMULATED_WARP][2];
    float c[EMULATED_WARP][4], number[EMULATED_WARP];
} emulated_product;

typedef struct emulated_warp {
    emulated_meeting meeting, team;
    emulated_product products[2];
} emulated_warp;

static struct {
    ucontext_t caller;
    emulated_item items[EMULATED_ITEMS];
    emulated_warp warps[EMULATED_ITEMS / EMULATED_WARP];
    emulated_meeting barrier;
    char *stacks;
    void (*kernel)(const void *);
    const void *arguments;
    size_t group[2];
    int n, at, left, turns;
    bool late; /* the second way, see above */
} emulated;

static inline void emulated_fail(const char *what) {
    fprintf(stderr, "emulator: %s\n", what);
    abort();
}

/* Switches to the next item that has not ended. */
static inline void emulated_turn(void) {
    const int own = emulated.at;
    if (++emulated.turns > 4 * emulated.n)
        emulated_fail("the items of a group do not meet");
    do
        emulated.at = (emulated.at + (emulated.late ? emulated.n - 1 : 1)) % emulated.n;
    while (emulated.items[emulated.at].ended);
    if (emulated.at != own)
        swapcontext(&emulated.items[own].context, &emulated.items[emulated.at].context);
}

static inline void emulated_meet(emulated_meeting *m, int n) {
    const unsigned round = m->round;
    if (++m->arrived == n) {
        m->arrived = 0;
        m->round++;
        emulated.turns = 0;
    }
    while (m->round == round)
        emulated_turn();
}

static inline __attribute__((unused)) size_t get_group_id(int axis) {
    return emulated.group[axis];
}
static inline __attribute__((unused)) size_t get_local_id(int axis) {
    return axis == 0 ? (size_t)emulated.at : 0;
}
#define get_global_id(axis)                                                                        \
    (get_group_id(axis) * ((axis) == 0 ? (size_t)emulated.n : 1) + get_local_id(axis))
#define barrier(fence)      emulated_meet(&emulated.barrier, emulated.n)
#define TEAM_BARRIER        emulated_meet(&emulated.warps[emulated.at / EMULATED_WARP].team, EMULATED_WARP)
#define CLK_LOCAL_MEM_FENCE 0

/* ---- tensor cores ------------------------------------------------------------- */

/* Element k of a row or column stored as `words` of bf16 pairs: item q has k 2q and 2q + 1 in the
 * first word and 2q + 8 and 2q + 9 in the second. */
static inline float emulated_factor(const uint *words, int step, int k) {
    return gqn_as_f32(words[step * (k / 8)] >> k % 2 * 16 << 16);
}

/* The product of a warp, in the layout of the PTX manual for m16n8k16 and bf16. */
static inline void emulated_multiply(emulated_product *p) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float *sum = &p->c[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
            for (int k = 0; k < 16; k++) {
                const int q = k % 8 / 2;
                const float a = emulated_factor(&p->a[row % 8 * 4 + q][row / 8], 2, k);
                const float b = emulated_factor(p->b[column * 4 + q], 1, k);
                *sum = gqn_fma(a, b, *sum);
            }
        }
}

static inline __attribute__((unused)) float4 mma_bf16(uint a0, uint a1, uint a2, uint a3, uint b0,
                                                      uint b1, float4 c) {
    emulated_warp *warp = &emulated.warps[emulated.at / EMULATED_WARP];
    emulated_product *p = &warp->products[warp->meeting.round % 2];
    const int lane = emulated.at % EMULATED_WARP;
    memcpy(p->a[lane], (const uint[]){a0, a1, a2, a3}, sizeof p->a[lane]);
    memcpy(p->b[lane], (const uint[]){b0, b1}, sizeof p->b[lane]);
    memcpy(p->c[lane], &c, sizeof c);
    if (warp->meeting.arrived == EMULATED_WARP - 1)
        emulated_multiply(p);
    emulated_meet(&warp->meeting, EMULATED_WARP);
    memcpy(&c, p->c[lane], sizeof c);
    return c;
}

static inline __attribute__((unused)) float of_other(float x, int mask) {
    emulated_warp *warp = &emulated.warps[emulated.at / EMULATED_WARP];
    emulated_product *p = &warp->products[warp->meeting.round % 2];
    const int lane = emulated.at % EMULATED_WARP;
    p->number[lane] = x;
    emulated_meet(&warp->meeting, EMULATED_WARP);
    return p->number[lane ^ mask];
}

static inline void emulated_copy_now(const emulated_copy *c) {
    if (c->there)
        memcpy(c->to, c->from, c->size);
    else
        memset(c->to, 0, c->size);
}

static inline void emulated_copy_later(void *to, const void *from, size_t size, bool there) {
    emulated_item *item = &emulated.items[emulated.at];
    const emulated_copy copy = {
        .to = to, .from = from, .size = size, .there = there, .set = item->set};
    if ((uintptr_t)to % size || (there && (uintptr_t)from % size))
        emulated_fail("a copy to local memory is not aligned");
    if (item->n_copies == EMULATED_COPIES)
        emulated_fail("copies are not waited for");
    if (!emulated.late)
        emulated_copy_now(&copy);
    item->copies[item->n_copies++] = copy;
}

#define copy_async(to, from, there) emulated_copy_later((to), (from), 16, (there))
#define copy_16(to, from)           emulated_copy_later((to), (from), 16, true)
#define copy_4(to, from)            emulated_copy_later((to), (from), 4, true)
#define COPIES_AHEAD(n)             ((n)-1)
#define COPIED(barrier_of)

static inline __attribute__((unused)) void copy_commit(void) {
    emulated.items[emulated.at].set++;
}

static inline __attribute__((unused)) void copy_wait(int n) {
    emulated_item *item = &emulated.items[emulated.at];
    int kept = 0;
    for (int i = 0; i < item->n_copies; i++)
        if (item->copies[i].set >= item->set - n)
            item->copies[kept++] = item->copies[i];
        else if (emulated.late)
            emulated_copy_now(&item->copies[i]);
    item->n_copies = kept;
}

/* ---- launches ----------------------------------------------------------------- */

static void emulated_begin(void) {
    emulated.kernel(emulated.arguments);
    emulated_item *item = &emulated.items[emulated.at];
    item->ended = true;
    emulated.turns = 0;
    if (--emulated.left > 0)
        emulated_turn();
    setcontext(&emulated.caller);
}

static void emulated_prepare(emulated_item *item, char *stack) {
    item->ended = false;
    item->n_copies = item->set = 0;
    getcontext(&item->context);
    item->context.uc_stack.ss_sp = stack;
    item->context.uc_stack.ss_size = EMULATED_STACK;
    makecontext(&item->context, emulated_begin, 0);
}

static void emulated_group(void) {
    memset(group_memory_begin, 0xff, (size_t)(group_memory_end - group_memory_begin));
    memset(&emulated.barrier, 0, sizeof emulated.barrier);
    memset(emulated.warps, 0, sizeof emulated.warps);
    emulated.left = emulated.n;
    emulated.turns = 0;
    emulated.at = emulated.late ? emulated.n - 1 : 0;
    for (int i = 0; i < emulated.n; i++)
        emulated_prepare(&emulated.items[i], emulated.stacks + (size_t)i * EMULATED_STACK);
    swapcontext(&emulated.caller, &emulated.items[emulated.at].context);
}

/* Runs a kernel on a grid of groups of `items` items; `kernel` calls it with its arguments. */
static inline void emulate(void (*kernel)(const void *), const void *arguments, size_t across,
                           size_t down, int items, bool late) {
    if (!emulated.stacks)
        emulated.stacks = malloc((size_t)EMULATED_ITEMS * EMULATED_STACK);
    if (!emulated.stacks || items > EMULATED_ITEMS)
        emulated_fail("too many items");
    emulated.kernel = kernel;
    emulated.arguments = arguments;
    emulated.n = items;
    emulated.late = late;
    for (emulated.group[1] = 0; emulated.group[1] < down; emulated.group[1]++)
        for (emulated.group[0] = 0; emulated.group[0] < across; emulated.group[0]++)
            emulated_group();
}

#endif
