/* The oracle as a program: text numbers on stdin, the output and the present keys on stdout.
 *   B S P C Hq Hkv D rotary interleaved window scale softcap
 *   past[B] fresh[B] q[B,S,Hq,D] k[B,S,Hkv,D] v[B,S,Hkv,D] past_k[B,Hkv,P,D] past_v[B,Hkv,P,D]
 *   and, with rotary > 0: cos[C,rotary/2] sin[C,rotary/2]
 * Needs only the C library. Exits with 2 if the input does not have this form. */
#include "gqa_core.h"

#include <stdio.h>

static double *read_numbers(int n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    for (int i = 0; x && i < n; i++)
        if (scanf("%lf", &x[i]) != 1) {
            free(x);
            return NULL;
        }
    return x;
}

static int *read_lengths(int n, int most) {
    int *x = calloc((size_t)n + 1, sizeof *x);
    for (int i = 0; x && i < n; i++)
        if (scanf("%d", &x[i]) != 1 || x[i] < 0 || x[i] > most) {
            free(x);
            return NULL;
        }
    return x;
}

static int fits(const gqa_case *c) {
    const int n[] = {c->batch,   c->chunk,    c->past_rows, c->capacity,
                     c->q_heads, c->kv_heads, c->size};
    for (int i = 0; i < 7; i++)
        if (n[i] < (i == 2 ? 0 : 1) || n[i] > 1024)
            return 0;
    return c->q_heads % c->kv_heads == 0 && c->past_rows <= c->capacity && c->rotary >= 0 &&
           c->rotary <= c->size && c->rotary % 2 == 0;
}

static void print_rows(const char *name, const double *x, int rows, int width) {
    printf("%s\n", name);
    for (int i = 0; i < rows * width; i++)
        printf("%.9g%s", x[i], (i + 1) % width ? " " : "\n");
}

static int bad(void) {
    fputs("gqa_oracle: the input is not a case; see the head of gqa_oracle.c\n", stderr);
    return 2;
}

int main(void) {
    gqa_case c = {0};
    if (scanf("%d %d %d %d %d %d %d %d %d %d %lf %lf", &c.batch, &c.chunk, &c.past_rows,
              &c.capacity, &c.q_heads, &c.kv_heads, &c.size, &c.rotary, &c.interleaved, &c.window,
              &c.scale, &c.softcap) != 12 ||
        !fits(&c))
        return bad();
    int rows = c.batch * c.chunk, cached = c.batch * c.kv_heads * c.size;
    c.past = read_lengths(c.batch, c.past_rows);
    c.fresh = read_lengths(c.batch, c.chunk);
    if (!c.past || !c.fresh)
        return bad();
    for (int b = 0; b < c.batch; b++)
        if (c.past[b] + c.fresh[b] > c.capacity)
            return bad();
    c.q = read_numbers(rows * c.q_heads * c.size);
    c.k = read_numbers(rows * c.kv_heads * c.size);
    c.v = read_numbers(rows * c.kv_heads * c.size);
    c.past_k = read_numbers(cached * c.past_rows);
    c.past_v = read_numbers(cached * c.past_rows);
    if (c.rotary > 0) {
        c.cos = read_numbers(c.capacity * c.rotary / 2);
        c.sin = read_numbers(c.capacity * c.rotary / 2);
    }
    c.y = calloc((size_t)(rows * c.q_heads * c.size), sizeof *c.y);
    c.present_k = calloc((size_t)(cached * c.capacity), sizeof *c.y);
    c.present_v = calloc((size_t)(cached * c.capacity), sizeof *c.y);
    if (!c.q || !c.k || !c.v || !c.past_k || !c.past_v || !c.y || !c.present_k || !c.present_v ||
        (c.rotary > 0 && (!c.cos || !c.sin)) || !gqa_compute(&c))
        return bad();
    print_rows("y", c.y, rows * c.q_heads, c.size);
    print_rows("present_key", c.present_k, c.batch * c.kv_heads * c.capacity, c.size);
    return 0;
}
