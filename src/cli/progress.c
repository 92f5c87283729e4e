/* Monitors of long calls: Ctrl-C ends them, and stderr shows their progress, with a bar on a
 * terminal and a line every few seconds elsewhere. Short calls show nothing. */
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

enum { BAR = 30 };
static const double bar_after = 0.5, bar_every = 0.1, line_every = 5;

double cli_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool ended(void *arg) {
    const cli_progress *p = arg;
    return interrupt_seen() && !p->finishing;
}

static void clear(cli_progress *p) {
    if (p->shown)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
}

static void draw(cli_progress *p, double part) {
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr, "\r[%s] %3d %%  %s", bar, (int)(part * 100), p->what);
    p->shown = true;
}

static void show(void *arg, int64_t done, int64_t total) {
    cli_progress *p = arg;
    const double now = cli_seconds();
    if (done <= p->done || p->began == 0) { /* another call */
        p->began = now;
        p->reported = now;
    }
    p->done = done;
    if (done == total) {
        clear(p);
        p->began = 0;
    } else if (p->terminal && now - p->began >= bar_after && now - p->reported >= bar_every) {
        draw(p, (double)done / (double)total);
        p->reported = now;
    } else if (!p->terminal && now - p->reported >= line_every) {
        fprintf(stderr, "gqac: %s: %lld of %lld %s\n", p->what, (long long)(done / p->unit),
                (long long)(total / p->unit), p->unit > 1 ? "MiB" : "tokens");
        p->reported = now;
    }
}

static void open_progress(const cli *c, cli_progress *p, const char *what, int64_t unit) {
    *p = (cli_progress){.what = what, .unit = unit, .terminal = isatty(STDERR_FILENO)};
    p->monitor = (gqac_monitor){.size = sizeof p->monitor, .abort = ended, .arg = p};
    if (what && !cli_quiet(c))
        p->monitor.progress = show;
}

const gqac_monitor *cli_watch_model(cli *c) {
    open_progress(c, &c->model, "model", 1 << 20);
    return &c->model.monitor;
}

const gqac_monitor *cli_watch_steps(cli *c, const char *what) {
    open_progress(c, &c->steps, what, 1);
    return &c->steps.monitor;
}

gqac_status cli_context(cli *c, const gqac_program *program, int threads, const char *what,
                        gqac_context **context) {
    GQAC_TRY(gqac_context_create(program, threads, context, &c->diag));
    return gqac_context_set_monitor(*context, cli_watch_steps(c, what), NULL, &c->diag);
}

void cli_clear_progress(cli *c) {
    clear(&c->model);
    clear(&c->steps);
}
