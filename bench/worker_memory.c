/* The floor of a step that is limited by memory: reads a number of bytes once with all threads,
 * each thread a contiguous share, and does nothing with them.
 *
 *   worker_memory threads=N bytes=B rotate=R
 *                                      answers the lines that worker_gqac.c describes; a call reads
 *                                      the next of R pieces of memory, so that none is in a cache
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"

static uint64_t sum_of(const uint64_t *words, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += words[i];
    return sum;
}

/* Milliseconds to read n words; the sum is stored in *sum, so that the reads are not optimised
 * away. */
static double read_once(const uint64_t *words, size_t n, int threads, uint64_t *sum) {
    const size_t share = n / (size_t)threads;
    const double began = now_ms();
    uint64_t total = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : total)
    for (int t = 0; t < threads; t++)
        total += sum_of(words + (size_t)t * share, share);
    *sum += total;
    return now_ms() - began;
}

int main(int argc, char **argv) {
    int threads = 1;
    size_t bytes = 0, rotate = 1;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "threads=", 8))
            threads = atoi(argv[i] + 8);
        else if (!strncmp(argv[i], "bytes=", 6))
            bytes = (size_t)strtoull(argv[i] + 6, NULL, 10);
        else if (!strncmp(argv[i], "rotate=", 7))
            rotate = (size_t)strtoull(argv[i] + 7, NULL, 10);
        else
            return 2;
    }
    const size_t all = bytes * rotate;
    uint64_t *words = threads > 0 && all ? mmap(NULL, all, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                         : MAP_FAILED;
    if (words == MAP_FAILED) {
        puts("failed no memory");
        return 4;
    }
    (void)madvise(words, all, MADV_HUGEPAGE);
    memset(words, 1, all);
    puts("ready {\"version\": \"reads of 8-byte words\", \"open_ms\": 0}");
    fflush(stdout);
    uint64_t sum = 0;
    size_t call = 0;
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        const long n = strncmp(line, "run ", 4) ? 0 : strtol(line + 4, NULL, 10);
        printf("times");
        for (long i = 0; i < n; i++)
            printf(" %.6f", read_once(words + call++ % rotate * (bytes / sizeof *words),
                                      bytes / sizeof *words, threads, &sum));
        puts("");
        fflush(stdout);
    }
    return sum == 1; /* never: the bytes are ones */
}
