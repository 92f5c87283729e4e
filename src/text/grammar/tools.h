/* Private to the compiler of tools. */
#ifndef GQAC_TEXT_GRAMMAR_TOOLS_H
#define GQAC_TEXT_GRAMMAR_TOOLS_H

#include "text/grammar/build.h"

/* The rule of a text that does not have `marker`, and does not begin with the byte `first` (0: with
 * anything). It may end anywhere. Where the marker is complete, `then` continues (BUILD_NONE:
 * nothing does). The name of a marker that is a special token is not part of the text either; other
 * special tokens may be. */
uint32_t tools_text(builder *b, const char *marker, char first, uint32_t then);

#endif
