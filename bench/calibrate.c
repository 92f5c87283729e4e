/* The speed of the machine at this moment: the rate of fp32 fused multiply-adds in registers
 * (GFLOP/s, two each) and the rate at which memory is read (GB/s), on one thread and on N.
 *
 *   calibrate [N]   prints one line of JSON
 *
 * The best of five short runs is used: the question is whether the machine is disturbed for long,
 * not whether one run was interrupted. Twelve independent chains hide the latency of an fma. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 8 << 20, CHAINS = 12, RUNS = 5, MOST_THREADS = 256 };
static const size_t BUFFER = (size_t)256 << 20;

typedef struct isa {
    const char *name;
    int lanes;
    void (*fma)(float *out, long rounds);
    void (*read)(float *out, const float *data, size_t n);
} isa;

#define KERNELS(NAME, TARGET, VEC, LANES, SET, FMA, ADD, LOAD, STORE, ZERO)                        \
    __attribute__((target(TARGET))) static void fma_##NAME(float *out, long rounds) {              \
        VEC chain[CHAINS];                                                                         \
        const VEC a = SET(0.999999f), b = SET(1e-6f);                                              \
        for (int i = 0; i < CHAINS; i++)                                                           \
            chain[i] = SET((float)i);                                                              \
        for (long r = 0; r < rounds; r++)                                                          \
            for (int i = 0; i < CHAINS; i++)                                                       \
                chain[i] = FMA(chain[i], a, b);                                                    \
        for (int i = 0; i < CHAINS; i++)                                                           \
            STORE(out, ADD(LOAD(out), chain[i]));                                                  \
    }                                                                                              \
    __attribute__((target(TARGET))) static void read_##NAME(float *out, const float *data,         \
                                                            size_t n) {                            \
        VEC sum[8];                                                                                \
        for (int i = 0; i < 8; i++)                                                                \
            sum[i] = ZERO();                                                                       \
        for (size_t at = 0; at + 8 * LANES <= n; at += 8 * LANES)                                  \
            for (size_t i = 0; i < 8; i++)                                                         \
                sum[i] = ADD(sum[i], LOAD(data + at + i * LANES));                                 \
        for (int i = 0; i < 8; i++)                                                                \
            STORE(out, ADD(LOAD(out), sum[i]));                                                    \
    }

KERNELS(avx512, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps,
        _mm512_loadu_ps, _mm512_storeu_ps, _mm512_setzero_ps)
KERNELS(avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps,
        _mm256_loadu_ps, _mm256_storeu_ps, _mm256_setzero_ps)
#define PLAIN_MULADD(x, a, b) _mm_add_ps(_mm_mul_ps(x, a), b)
KERNELS(sse2, "sse2", __m128, 4, _mm_set1_ps, PLAIN_MULADD, _mm_add_ps, _mm_loadu_ps, _mm_storeu_ps,
        _mm_setzero_ps)

static isa pick(void) {
    if (__builtin_cpu_supports("avx512f"))
        return (isa){"avx512", 16, fma_avx512, read_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (isa){"avx2", 8, fma_avx2, read_avx2};
    return (isa){"sse2", 4, fma_sse2, read_sse2};
}

typedef struct job {
    const isa *set;
    size_t core;
    const float *data; /* NULL: the fma test */
    size_t n;
    pthread_barrier_t *start, *end;
    double began, ended; /* of the last run */
    float out[16];
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *arg) {
    job *j = arg;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(j->core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    for (int run = 0; run < RUNS; run++) {
        pthread_barrier_wait(j->start);
        j->began = now();
        if (j->data)
            j->set->read(j->out, j->data, j->n);
        else
            j->set->fma(j->out, ROUNDS);
        j->ended = now();
        pthread_barrier_wait(j->end);
    }
    return NULL;
}

/* Seconds from the first begin to the last end. The workers read the clocks, because a thread that
 * waits for them has no core while they run, and would read its clock late. */
static double seconds_of(const job *jobs, int threads) {
    double began = jobs[0].began, ended = jobs[0].ended;
    for (int t = 1; t < threads; t++) {
        began = jobs[t].began < began ? jobs[t].began : began;
        ended = jobs[t].ended > ended ? jobs[t].ended : ended;
    }
    return ended - began;
}

/* Seconds of the best run. */
static double best_of(const isa *set, int threads, const size_t *cores, const float *data) {
    static job jobs[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t start, end;
    double best = 1e30;
    const size_t share = BUFFER / sizeof(float) / (size_t)threads;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    for (int t = 0; t < threads; t++) {
        jobs[t] = (job){.set = set, .core = cores[t], .start = &start, .end = &end};
        jobs[t].data = data ? data + (size_t)t * share : NULL;
        jobs[t].n = share;
        if (pthread_create(&ids[t], NULL, work, &jobs[t]))
            exit(4);
    }
    for (int run = 0; run < RUNS; run++) {
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        const double taken = seconds_of(jobs, threads);
        best = taken < best ? taken : best;
    }
    for (int t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);
    pthread_barrier_destroy(&start);
    pthread_barrier_destroy(&end);
    return best;
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    size_t cores[MOST_THREADS];
    int n_cores = 0;
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    for (size_t c = 0; c < CPU_SETSIZE && n_cores < MOST_THREADS; c++)
        if (CPU_ISSET(c, &mine))
            cores[n_cores++] = c;
    if (threads < 1 || threads > n_cores) {
        fprintf(stderr, "calibrate: %d threads, but %d cores\n", threads, n_cores);
        return 2;
    }
    const isa set = pick();
    float *data = aligned_alloc(4096, BUFFER);
    if (!data)
        return 4;
    memset(data, 1, BUFFER);
    printf("{\"isa\": \"%s\", \"cores\": %d", set.name, n_cores);
    for (int pass = 0; pass < (threads > 1 ? 2 : 1); pass++) {
        const int n = pass ? threads : 1;
        const double flops = 2.0 * ROUNDS * CHAINS * set.lanes * n;
        printf(", \"fma_gflops_%d\": %.1f", n, 1e-9 * flops / best_of(&set, n, cores, NULL));
        printf(", \"dram_gbps_%d\": %.2f", n,
               1e-9 * (double)BUFFER / best_of(&set, n, cores, data));
    }
    printf("}\n");
    free(data);
    return 0;
}
