/* Private to saved.c and saved_header.c. */
#ifndef GQAC_RUNTIME_SAVED_IMPL_H
#define GQAC_RUNTIME_SAVED_IMPL_H

#include "runtime/saved.h"

enum { SAVED_VERSION = 4, SAVED_BYTE_ORDER = 0x01020304, SAVED_LINE = 64 };
extern const char saved_magics[SAVED_FORMS][8];

/* Fails with INVALID_INPUT. */
gqac_status saved_refuse(gqac_diag *diag, const char *why);
void saved_digest_header(const saved_header *header, unsigned char digest[32]);
/* `data`: the saved sequence from its beginning. */
void saved_digest_section(const unsigned char *data, const saved_part *section,
                          unsigned char digest[32]);

#endif
