/* Fuzz targets: one file fuzz_<name>.c, and one row, for each format that may be hostile.
 *
 * A target takes the bytes of a hostile input and uses them as a program would. It returns the
 * status of the last call, and aborts if a promise is broken that no sanitizer checks: a status
 * INTERNAL, a failure without a text, a state that a failed call changed. The same rows are linked
 * to libFuzzer (driver.c, one program each) and to a test that replays earlier findings
 * (test_replay.c). */
#ifndef GQAC_TEST_FUZZ_FUZZ_H
#define GQAC_TEST_FUZZ_FUZZ_H

#include <gqac/gqac.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_target {
    const char *name;
    gqac_status (*run)(const uint8_t *data, size_t size);
    /* Changes an input of `size` bytes to another one of at most `most` bytes, and returns its
     * size. NULL: only libFuzzer's changes of bytes. */
    size_t (*mutate)(uint8_t *data, size_t size, size_t most, unsigned seed);
} fuzz_target;
extern const fuzz_target *const fuzz_targets[]; /* all rows, sorted by name; the last one is NULL */

/* For `mutate`: changes bytes as libFuzzer does; without libFuzzer, one bit. */
size_t fuzz_change(uint8_t *data, size_t size, size_t most);

/* An input of two parts, divided by its first NUL. */
typedef struct fuzz_parts {
    const char *first, *second; /* second NULL: there is no NUL */
    size_t n_first, n_second;
} fuzz_parts;
fuzz_parts fuzz_split(const uint8_t *data, size_t size);

/* Returns the status. Aborts if it is INTERNAL, or a failure without a text. */
gqac_status fuzz_check(gqac_status status, const gqac_diag *diag);
/* Prints the text and aborts. */
_Noreturn void fuzz_broken(const char *what);

/* The path of a regular file with these bytes, valid until the next call. */
const char *fuzz_file(const void *data, size_t size);
/* The path of an empty folder in memory, valid until the process ends. */
const char *fuzz_folder(void);

/* Ends calls that take longer than any hostile model should make them take: gqac must call the
 * monitor often, whatever it computes. */
const gqac_monitor *fuzz_deadline(void);

/* Opens a model in memory; the ending of `name` is its format. Memory has a budget. */
gqac_status fuzz_open(const char *name, const void *data, size_t size, const char *target,
                      bool stateless, gqac_program **program, gqac_diag *diag);
/* Opens the model for sequences and as a stateless one, on cpu and on ref, and uses each. */
gqac_status fuzz_model(const char *name, const void *data, size_t size);
/* Steps of a program for sequences: a prompt, a decode step, a fork, a rewind. */
gqac_status fuzz_steps(const gqac_program *program, gqac_diag *diag);

/* Small models of known graphs, opened once: one with keys and values, one with a sliding window
 * and a quantised weight, and one with recurrent states. FUZZ_SERVED is one more, with 512 ids. */
enum { FUZZ_PROGRAMS = 3, FUZZ_SERVED = FUZZ_PROGRAMS };
const gqac_program *fuzz_program(int which);
const char *fuzz_program_text(int which);
/* Writes valid files of these models to a folder: .gq, .onnx, .gqac, .gqs, and an .npy. */
void fuzz_write_files(const char *folder);

/* A copy of a snapshot file, aligned to 64 bytes, with the model, profile and checksums that
 * program `which` expects, so that all code after these checks is reached. The caller frees it. */
uint8_t *fuzz_sign_snapshot(int which, const uint8_t *data, size_t size);

#endif
