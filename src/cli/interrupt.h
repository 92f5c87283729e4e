/* Ctrl-C: the first SIGINT is noted, so that what runs can end in order; the second one kills. */
#ifndef GQAC_CLI_INTERRUPT_H
#define GQAC_CLI_INTERRUPT_H

#include <stdbool.h>

/* Forgets an earlier SIGINT and notes the next one. Ignores SIGPIPE: a reader of stdout that went
 * away is a failed write. */
void interrupt_listen(void);
/* Notes SIGTERM likewise: for a verb that has begun a file, which it removes. */
void interrupt_listen_term(void);
bool interrupt_seen(void);
/* Keeps SIGINT from the calling thread and from threads it starts, until it is let in again: it
 * must reach the thread that waits. */
void interrupt_hold(bool hold);
/* Waits until the file can be read; false when SIGINT came. */
bool interrupt_wait(int fd);

#endif
