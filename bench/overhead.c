/* The cost of a decode step outside its kernels: the normal step and the same step with kernels
 * that do nothing, alternately. The empty step measures the run time: checks, the sequence of
 * nodes, operands, the division of work into items, memory, blocks of the cache; and the nodes that
 * no family of kernels computes (rows of an embedding, selection of the rows of logits).
 *
 *   overhead MODEL PAST STEPS SAMPLES     one thread; SAMPLES times STEPS steps of one token
 *
 * Prints {"version", "profile", "level", "step_us": [...], "empty_us": [...]}: microseconds for a
 * step. All arithmetic of the cpu target is in the functions of a level, so a level of empty
 * functions is sufficient; with the linker's --wrap the target chooses it. Values are then the
 * previous contents of memory, but no branch outside kernels depends on them. */
#define _GNU_SOURCE
#include <gqac/gqac.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "targets/cpu/attention.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/integer.h"
#include "targets/cpu/linear.h"
#include "targets/cpu/nbits.h"
#include "targets/cpu/rows.h"

typedef struct side {
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence;
    double *us; /* of each sample */
} side;

static bool empty; /* true: the next chosen level has empty kernels */
static gqac_diag diag;

static void nothing(void) {
}

#define EMPTY(function) ((function) = (__typeof__(function))nothing)
/* A function that is added to a family must be replaced below, and counted here. */
#define COUNT(family, functions, ints)                                                             \
    _Static_assert(sizeof(family) == (functions) * sizeof(void (*)(void)) + (ints) * sizeof(int),  \
                   "not all functions are known")
COUNT(struct cpu_linear_kernels, 2, 2);
COUNT(struct cpu_nbits_kernels, 4, 0);
COUNT(struct cpu_integer_kernels, 3, 0);
COUNT(struct cpu_attend_kernels, 4, 0);
COUNT(struct cpu_row_kernels, 4, 0);

gqac_status __real_cpu_level_pick(const void **level, gqac_diag *d);
gqac_status __wrap_cpu_level_pick(const void **level, gqac_diag *d);
gqac_status __wrap_cpu_level_pick(const void **level, gqac_diag *d) {
    static cpu_level hollow;
    static struct cpu_linear_kernels linear, linear_bf16;
    static struct cpu_nbits_kernels nbits;
    static struct cpu_integer_kernels integer;
    static struct cpu_attend_kernels attend;
    static struct cpu_row_kernels row;
    const gqac_status status = __real_cpu_level_pick(level, d);
    if (status != GQAC_OK || !empty)
        return status;
    hollow = *(const cpu_level *)*level;
    linear = *hollow.linear, linear_bf16 = *hollow.linear_bf16;
    nbits = *hollow.nbits, integer = *hollow.integer;
    attend = *hollow.attend, row = *hollow.row;
    EMPTY(linear.run), EMPTY(linear_bf16.run); /* but not the functions that return sizes */
    EMPTY(nbits.quantise), EMPTY(nbits.int8), EMPTY(nbits.fp32), EMPTY(nbits.finish);
    EMPTY(integer.prepare), EMPTY(integer.run);
    EMPTY(attend.run), EMPTY(attend.join), EMPTY(attend.columns);
    EMPTY(row.norm), EMPTY(row.head), EMPTY(row.chain), EMPTY(row.part);
    hollow.linear = &linear, hollow.linear_bf16 = &linear_bf16;
    hollow.nbits = &nbits, hollow.integer = &integer;
    hollow.attend = &attend, hollow.row = &row;
    *level = &hollow;
    return GQAC_OK;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static gqac_status append(side *s, int64_t n) {
    int64_t ids[4096];
    const int64_t from = gqac_sequence_length(s->sequence);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (from + i) * 7919 % gqac_program_vocabulary(s->program);
    return gqac_sequence_append(s->context, s->sequence, ids, n, GQAC_LOGITS_ALL, &diag);
}

static gqac_status open_side(side *s, const char *model, bool without, int64_t past, long samples) {
    gqac_options options;
    gqac_options_init(&options);
    empty = without;
    s->us = calloc((size_t)samples + 1, sizeof *s->us);
    gqac_status status =
        s->us ? gqac_program_open(model, &options, &s->program, &diag) : GQAC_NO_MEMORY;
    if (status == GQAC_OK)
        status = gqac_context_create(s->program, 1, &s->context, &diag);
    if (status == GQAC_OK)
        status = gqac_sequence_create(s->program, NULL, &s->sequence, &diag);
    return status == GQAC_OK ? append(s, past) : status;
}

static gqac_status sample(side *s, int64_t past, long steps, double *us) {
    gqac_status status = gqac_sequence_rewind(s->sequence, past, &diag);
    const double began = now_us();
    for (long i = 0; status == GQAC_OK && i < steps; i++)
        status = append(s, 1);
    *us = (now_us() - began) / (double)steps;
    return status;
}

static void print_times(const char *name, const double *us, long n) {
    printf(", \"%s\": [", name);
    for (long i = 0; i < n; i++)
        printf("%s%.3f", i ? ", " : "", us[i]);
    printf("]");
}

static void print(const side *s, long n) {
    const char *level = gqac_program_level(s[0].program);
    printf("{\"version\": \"%s\", \"profile\": \"%s\", \"level\": \"%s\"", gqac_version(),
           gqac_program_profile(s[0].program), level ? level : "scalar");
    print_times("step_us", s[0].us, n);
    print_times("empty_us", s[1].us, n);
    puts("}");
}

int main(int argc, char **argv) {
    const long past = argc == 5 ? strtol(argv[2], NULL, 10) : 0;
    const long steps = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    const long samples = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
    side sides[2] = {0};
    if (past < 1 || past > 4096 || steps < 1 || samples < 1) {
        fprintf(stderr, "overhead MODEL PAST STEPS SAMPLES\n");
        return 2;
    }
    gqac_status status = open_side(&sides[0], argv[1], false, past, samples);
    if (status == GQAC_OK)
        status = open_side(&sides[1], argv[1], true, past, samples);
    double warm = 0;
    for (int i = 0; status == GQAC_OK && i < 2; i++)
        status = sample(&sides[i], past, steps, &warm);
    for (long i = 0; status == GQAC_OK && i < 2 * samples; i++) {
        side *s = &sides[(i + 1) / 2 % 2]; /* ABBA */
        status = sample(s, past, steps, &s->us[i / 2]);
    }
    if (status != GQAC_OK)
        fprintf(stderr, "%s: %s %s\n", gqac_status_name(status), diag.what, diag.where);
    else
        print(sides, samples);
    for (int i = 0; i < 2; i++) {
        gqac_sequence_free(sides[i].sequence);
        gqac_context_free(sides[i].context);
        gqac_program_free(sides[i].program);
        free(sides[i].us);
    }
    return status == GQAC_OK ? 0 : 1;
}
