/* See sandboxing.h. */
#include "cli/sandboxing.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/flags.h"
#include "cli/sandbox.h"

enum { MOST_PATHS = 32 };

typedef struct listing {
    sandbox_path paths[MOST_PATHS];
    int n;
} listing;

static void add(listing *l, const char *path, bool written) {
    if (path && l->n < MOST_PATHS)
        l->paths[l->n++] = (sandbox_path){path, written};
}

/* The folder that has the file of this name. */
static void folder_of(const char *file, char folder[PATH_MAX]) {
    const char *slash = strrchr(file, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
}

static void add_flags(listing *l, const cli *c, const cli_flag *flags) {
    for (const cli_flag *f = flags; f && f->name; f++)
        if (f->value && (!strcmp(f->value, "FILE") || !strcmp(f->value, "DIR")))
            add(l, cli_value(c, f->name), false);
}

gqac_status sandboxing_enter(cli *c, const char *written) {
    /* the number of processors; and /proc/self/fd, by which an unnamed output file gets its name */
    static const char *const system[] = {"/proc/self", "/sys/devices/system/cpu", "/sys/fs/cgroup"};
    const char *target = cli_value(c, "target"), *model = c->operands[0];
    char folder[PATH_MAX];
    struct stat info;
    listing l = {.n = 0};
    if (!cli_switch(c, "sandbox"))
        return GQAC_OK;
    if (target && !strcmp(target, "gpu"))
        return cli_usage(c, "--sandbox is not possible with --target gpu: its drivers use devices, "
                            "files and programs of their own");
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        add(&l, system[i], false);
    add(&l, model, false);
    if (stat(model, &info) != 0 || !S_ISDIR(info.st_mode)) {
        folder_of(model, folder);
        add(&l, folder, false);
    }
    add_flags(&l, c, c->verb->flags);
    add_flags(&l, c, cli_common_flags(c->verb));
    add(&l, written, true);
    const char *why = sandbox_lock(l.paths, l.n);
    if (!why) {
        c->confined = true;
        return GQAC_OK;
    }
    cli_usage(c, "--sandbox is not possible here: %s", why);
    cli_rule(c, "it needs Landlock 3 (Linux 6.2) and seccomp filters");
    return cli_hint(c, "without --sandbox, as a separate user and without network access");
}

gqac_status sandboxing_enter_for(cli *c, const char *output) {
    char folder[PATH_MAX];
    if (!output)
        return sandboxing_enter(c, NULL);
    folder_of(output, folder);
    return sandboxing_enter(c, folder);
}
