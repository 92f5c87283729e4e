/* Private to the compiler of tools. */
#ifndef GQAC_TEXT_GRAMMAR_TOOLS_H
#define GQAC_TEXT_GRAMMAR_TOOLS_H

#include "text/grammar/build.h"

enum { TOOLS_MARKERS = 2 };

typedef struct text_marker {
    const char *text;
    uint32_t then; /* the rule after it; BUILD_NONE: it must not occur */
} text_marker;

/* The rule of a text without any of the markers, at most TOOLS_MARKERS, that does not begin with
 * the byte `first` (0: with anything). It may end anywhere. Where a marker is complete, its `then`
 * continues. The name of a marker that is a special token is not part of the text either; other
 * special tokens may be. */
uint32_t tools_text(builder *b, const text_marker *markers, size_t n, char first);

#endif
