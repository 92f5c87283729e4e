/* Parsing of the texts of support.h, shared by its own files. */
#ifndef GQAC_TEST_OPS_SUPPORT_TEXT_H
#define GQAC_TEST_OPS_SUPPORT_TEXT_H

#include "support.h"

/* The next entry of an input list. */
bool next_part(const char **list, const char **part, size_t *length);

typedef struct text_attr {
    const char *name;
    ir_attr_kind kind;
    ir_attr attr;
} text_attr;
bool next_attr(gqac_arena *arena, const char **list, text_attr *out);

#endif
