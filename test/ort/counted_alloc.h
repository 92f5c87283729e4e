/* What the provider under test exports in addition to its own functions. */
#ifndef GQAC_TEST_COUNTED_ALLOC_H
#define GQAC_TEST_COUNTED_ALLOC_H

#include <gqac/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts counting calls; call number n (from 1) fails. 0: they are only counted. */
GQAC_API void counted_fail_at(size_t n);
GQAC_API size_t counted_calls(void); /* since counted_fail_at */
GQAC_API size_t counted_peak(void);  /* maximum of bytes allocated at the same time since then */
GQAC_API size_t counted_live(void);  /* allocations not yet freed */

#endif
