/* The arenas that a test of the rows_ files has opened; they are freed together at its end. */
#ifndef GQAC_TEST_SUPPORT_ARENAS_H
#define GQAC_TEST_SUPPORT_ARENAS_H

#include "base/arena.h"
#include "unit.h"

static gqac_arena *opened[512];
static int n_opened;

static inline gqac_arena *keep(gqac_arena *arena) {
    CU_ASSERT_FATAL(arena && n_opened < 512);
    return opened[n_opened++] = arena;
}

static inline void close_all(void) {
    while (n_opened > 0)
        gqac_arena_free(opened[--n_opened]);
}

#endif
