/* The monotonic clock: time since a fixed moment, unaffected by changes of the system's date. */
#ifndef GQAC_BASE_CLOCK_H
#define GQAC_BASE_CLOCK_H

#include <stdint.h>

int64_t gqac_clock_ns(void);
double gqac_clock_seconds(void);

#endif
