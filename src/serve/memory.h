/* Detects that memory ran out on the thread of connections, whoever asked for it.
 *
 * jansson and libevent do not report every allocation that fails. jansson leaves out a byte of a
 * text or a member of an object, and reads past a text whose closing quote it left out; libevent
 * leaves out bytes of a body, or never sends a reply. So both get their memory here. A piece of
 * work begins with memory_begin, and none of its results is sent before memory_ran_out was
 * asked. */
#ifndef GQAC_SERVE_MEMORY_H
#define GQAC_SERVE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Gives both libraries the functions of this file, before libevent is used. `longest`: maximum
 * number of bytes of a text that jansson reads. False: no memory. */
bool memory_open(size_t longest);

/* From now on, an allocation that fails on this thread makes all later ones of jansson fail, until
 * the next call. */
void memory_begin(void);
bool memory_ran_out(void); /* since then */
/* Records a failed allocation that neither library made. */
void memory_note(void);
/* How many allocations have failed on this thread. */
size_t memory_failures(void);

#endif
