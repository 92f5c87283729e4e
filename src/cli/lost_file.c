/* Models are mapped files. If one becomes shorter, or its disk fails, a read of the lost page is a
 * SIGBUS. The tool then says so and ends with the exit code of IO, like any other file that cannot
 * be read. A file that is being written has no name yet, so nothing is left behind. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static char text[256]; /* made in advance, because a handler may not */
static int code;

static void say_and_end(int number) {
    (void)number;
    (void)!write(STDERR_FILENO, text, strlen(text));
    _exit(code);
}

void cli_watch_files(void) {
    struct sigaction action;
    code = gqac_status_exit_code(GQAC_IO);
    snprintf(text, sizeof text,
             "gqac: a mapped file was truncated\n"
             "  rule:  files of a model must not be truncated while they are in use\n"
             "  try:   to replace a file, write a new one and rename it\n"
             "  exit:  %d, %s\n",
             code, gqac_status_meaning(GQAC_IO));
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = say_and_end;
    sigaction(SIGBUS, &action, NULL);
}
