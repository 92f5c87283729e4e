/* See interrupt.h. A signal handler gets no pointer, so `seen` is a variable of this file; only
 * lost_file.c has another such variable. */
#include "cli/interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

static volatile sig_atomic_t seen;

static void note(int number) {
    (void)number;
    seen = 1;
}

static void note_once(int number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = note;
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(number, &action, NULL);
}

void interrupt_listen_term(void) {
    note_once(SIGTERM);
}

void interrupt_listen(void) {
    seen = 0;
    note_once(SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
}

bool interrupt_seen(void) {
    return seen != 0;
}

void interrupt_hold(bool hold) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

bool interrupt_wait(int fd) {
    sigset_t none;
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    sigemptyset(&none);
    /* a signal between the test of `seen` and the wait must end the wait */
    interrupt_hold(true);
    bool ready = false;
    while (!seen && !ready)
        ready = ppoll(&wanted, 1, NULL, &none) >= 0 || errno != EINTR;
    interrupt_hold(false);
    return !seen;
}
