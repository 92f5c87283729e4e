/* The monotonic clock: time since some fixed moment, which changes of the date do not move. */
#ifndef GQAC_BASE_CLOCK_H
#define GQAC_BASE_CLOCK_H

#include <stdint.h>

int64_t gqac_clock_ns(void);
double gqac_clock_seconds(void);

#endif
