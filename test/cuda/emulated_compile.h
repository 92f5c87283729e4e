/* See emulated_compile.c. */
#ifndef GQAC_TEST_CUDA_EMULATED_COMPILE_H
#define GQAC_TEST_CUDA_EMULATED_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

/* Compiles the text to a library in the folder, and writes its path to `code`. False: it does not
 * compile. */
bool emulated_compile(const char *cc, const char *folder, const char *text, char *code,
                      size_t size);

#endif
