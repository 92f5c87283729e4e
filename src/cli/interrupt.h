/* Ctrl-C: the first SIGINT is noted, so that a call can end in order; the second one kills the
 * process. */
#ifndef GQAC_CLI_INTERRUPT_H
#define GQAC_CLI_INTERRUPT_H

#include <stdbool.h>

/* Forgets an earlier SIGINT and notes the next one. Ignores SIGPIPE: when the reader of stdout has
 * ended, a write fails. */
void interrupt_listen(void);
/* Notes SIGTERM too: for verbs that remove the file that they have begun. */
void interrupt_listen_term(void);
bool interrupt_seen(void);
/* Blocks or unblocks SIGINT for the calling thread and for threads that it starts: the signal must
 * reach the thread that waits. */
void interrupt_hold(bool hold);
/* Waits until the file can be read; false when SIGINT came. */
bool interrupt_wait(int fd);

#endif
