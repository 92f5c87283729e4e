/* gqac cache ACTION DIR: the snapshot files of a prefix store, without a model. `info` also says
 * what the server of a remote tier reports. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/caching.h"

enum { MIB = 1 << 20 };

static const cli_flag flags[] = {
    {"budget", "MIB",
     "gc: removes the least recently used files until this much remains (no maximum)"},
    CACHING_TLS_FLAGS,
    {NULL, NULL, NULL},
};

typedef struct listing {
    gqac_store_file *files;
    size_t n, damaged;
    int64_t bytes;
    bool remote; /* DIR is the address of a remote tier */
} listing;

static gqac_status list(cli *c, bool whole, listing *l) {
    GQAC_TRY(gqac_store_folder_list(c->operands[1], whole, &l->files, &l->n, &c->diag));
    if (!l->n && !cli_quiet(c))
        fprintf(stderr, "gqac: '%s' contains no snapshot files (.gqs)\n",
                cli_shown(c->operands[1]).s);
    for (size_t i = 0; i < l->n; i++) {
        l->damaged += !l->files[i].file;
        l->bytes += l->files[i].bytes;
    }
    return GQAC_OK;
}

static json_t *file_json(const gqac_store_file *f) {
    const gqac_snapshot_file *s = f->file;
    json_t *all = json_pack("{s:o, s:I, s:I, s:b}", "name", cli_text_json(f->name), "bytes",
                            (json_int_t)f->bytes, "used", (json_int_t)f->used, "damaged", !s);
    if (!s)
        json_object_set_new(all, "why", json_string(cli_shown(f->why.what).s));
    else
        json_object_update_new(
            all, json_pack("{s:I, s:I, s:o, s:o, s:s}", "tokens", (json_int_t)s->length, "states",
                           (json_int_t)s->states, "kind", cli_text_json(s->kind), "profile",
                           cli_text_json(s->profile), "model", s->model));
    return all;
}

static void print_json(const listing *l) {
    json_t *files = json_array();
    for (size_t i = 0; i < l->n; i++)
        json_array_append_new(files, file_json(&l->files[i]));
    cli_print_json(json_pack("{s:o, s:I, s:I}", "files", files, "bytes", (json_int_t)l->bytes,
                             "damaged", (json_int_t)l->damaged));
}

static void show_time(int64_t used, char text[32]) {
    const time_t t = (time_t)(used / 1000000000);
    struct tm parts;
    if (!gmtime_r(&t, &parts) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S", &parts))
        strcpy(text, "-");
}

/* ---- actions ------------------------------------------------------------- */

static gqac_status act_ls(cli *c, listing *l) {
    GQAC_TRY(list(c, true, l));
    if (cli_json(c))
        return GQAC_OK;
    printf("%8s %12s  %-19s  %s\n", "tokens", "bytes", "used (UTC)", "name");
    for (size_t i = 0; i < l->n; i++) {
        const gqac_store_file *f = &l->files[i];
        char used[32], tokens[24] = "damaged";
        show_time(f->used, used);
        if (f->file)
            snprintf(tokens, sizeof tokens, "%lld", (long long)f->file->length);
        printf("%8s %12lld  %-19s  %s\n", tokens, (long long)f->bytes, used, cli_shown(f->name).s);
    }
    return GQAC_OK;
}

static gqac_status act_info(cli *c, listing *l) {
    l->remote = caching_is_address(c->operands[1]);
    if (l->remote)
        return caching_print_remote(c, c->operands[1]);
    GQAC_TRY(list(c, true, l));
    for (size_t i = 0; i < l->n && !cli_json(c); i++) {
        const gqac_store_file *f = &l->files[i];
        const gqac_snapshot_file *s = f->file;
        printf("%s\n", cli_shown(f->name).s);
        if (s)
            printf("  model    %s\n  profile  %s\n  cache    %s, %lld tokens, %lld states\n"
                   "  bytes    %lld\n",
                   s->model, cli_shown(s->profile).s, cli_shown(s->kind).s, (long long)s->length,
                   (long long)s->states, (long long)f->bytes);
        else
            printf("  damaged  %s\n", cli_shown(f->why.what).s);
    }
    if (!cli_json(c))
        printf("%zu files, %lld bytes, %zu damaged\n", l->n, (long long)l->bytes, l->damaged);
    return GQAC_OK;
}

static gqac_status act_verify(cli *c, listing *l) {
    GQAC_TRY(list(c, true, l));
    for (size_t i = 0; i < l->n && !cli_json(c); i++) {
        const gqac_store_file *f = &l->files[i];
        printf("%s %s%s%s\n", f->file ? "ok     " : "damaged", cli_shown(f->name).s,
               f->file ? "" : ": ", f->file ? "" : cli_shown(f->why.what).s);
    }
    if (!cli_json(c))
        printf("%zu files, %zu damaged\n", l->n, l->damaged);
    return GQAC_OK;
}

static gqac_status act_gc(cli *c, listing *l) {
    long long budget = 0;
    int64_t removed = 0;
    GQAC_TRY(cli_number(c, "budget", 1, INT64_MAX / MIB, 0, &budget));
    GQAC_TRY(gqac_store_folder_clean(c->operands[1], budget * MIB, &removed, &c->diag));
    GQAC_TRY(list(c, false, l));
    if (!cli_json(c))
        printf("%lld files removed, %zu files of %lld bytes remain\n", (long long)removed, l->n,
               (long long)l->bytes);
    return GQAC_OK;
}

/* Copies n snapshot files into the folder `to`, which is created if it is missing. */
static gqac_status copy_files(cli *c, int n, const char *const *paths, const char *to) {
    int added = 0;
    GQAC_TRY(caching_make_folder(c, to));
    for (int i = 0; i < n; i++) {
        bool is_new = false;
        GQAC_TRY(gqac_store_folder_add(to, NULL, paths[i], &is_new, &c->diag));
        added += is_new;
    }
    if (!cli_json(c))
        printf("%d files added, %d were there already\n", added, n - added);
    return GQAC_OK;
}

static gqac_status export_files(cli *c, listing *l, char **paths) {
    int n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const size_t size = strlen(c->operands[1]) + strlen(l->files[i].name) + 2;
        if (!l->files[i].file) {
            cli_warn_refusal(c, "not exported", &l->files[i].why);
            continue;
        }
        paths[n] = malloc(size);
        if (!paths[n])
            return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
        snprintf(paths[n++], size, "%s/%s", c->operands[1], l->files[i].name);
    }
    return copy_files(c, n, (const char *const *)paths, c->operands[2]);
}

static gqac_status act_export(cli *c, listing *l) {
    if (c->n_operands != 3)
        return cli_usage(c, "cache export DIR OTHER: the folder to copy to is missing");
    GQAC_TRY(list(c, true, l));
    char **paths = calloc(l->n + 1, sizeof *paths);
    const gqac_status status =
        paths ? export_files(c, l, paths) : cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    for (size_t i = 0; paths && i < l->n; i++)
        free(paths[i]);
    free(paths);
    return status;
}

static gqac_status act_import(cli *c, listing *l) {
    if (c->n_operands < 3)
        return cli_usage(c, "cache import DIR FILE ...: the files are missing");
    GQAC_TRY(copy_files(c, c->n_operands - 2, c->operands + 2, c->operands[1]));
    return list(c, false, l);
}

static const struct action {
    const char *name;
    bool others; /* takes more operands than DIR */
    gqac_status (*run)(cli *c, listing *l);
} actions[] = {{"ls", false, act_ls}, {"info", false, act_info},    {"verify", false, act_verify},
               {"gc", false, act_gc}, {"export", true, act_export}, {"import", true, act_import}};

static gqac_status act(cli *c, listing *l) {
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(c->operands[0], actions[i].name) != 0)
            continue;
        if (c->n_operands < 2)
            return cli_usage(c, "DIR is missing");
        if (c->n_operands > 2 && !actions[i].others)
            return cli_usage(c, "unexpected operand '%s'", c->operands[2]);
        if (cli_value(c, "budget") && strcmp(actions[i].name, "gc") != 0)
            return cli_usage(c, "--budget is a flag of cache gc");
        if (strcmp(actions[i].name, "info") != 0 || !caching_is_address(c->operands[1]))
            GQAC_TRY(caching_refuse_tls(c, "cache info rediss://HOST:PORT"));
        return actions[i].run(c, l);
    }
    return cli_usage(c, "cache '%s' is not ls, info, verify, gc, export or import", c->operands[0]);
}

static int run(cli *c) {
    listing l = {0};
    const gqac_status status = act(c, &l);
    if (status == GQAC_OK && cli_json(c) && !l.remote)
        print_json(&l);
    const bool bad = l.damaged && !strcmp(c->operands[0], "verify");
    gqac_store_folder_free(l.files, l.n);
    return status == GQAC_OK && bad ? 1 : cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_cache;
const gqac_cli_verb gqac_cli_verb_cache = {
    .name = "cache",
    .operands = "ls|info|verify|gc|export|import DIR ...",
    .least = 1,
    .most = -1,
    .summary = "lists, checks, copies and removes the files of a prefix store",
    .details =
        "  ls DIR                lists number of tokens, bytes, last use and name of each file\n"
        "  info DIR              adds model, numerics profile and kind of cache\n"
        "  info redis://...      prints version, keys, memory and hits of a Redis server\n"
        "  verify DIR            checks every byte of every file; exit 1 if one is damaged\n"
        "  gc DIR                removes damaged files, leftovers of killed processes, and with\n"
        "                        --budget the least recently used files\n"
        "  export DIR OTHER      copies the files into another folder\n"
        "  import DIR FILE ...   checks files, and copies them into DIR\n",
    .examples = "gqac cache ls store\n"
                "gqac cache gc store --budget 1024\n"
                "gqac cache info redis://localhost:6379\n",
    .flags = flags,
    .no_model = true,
    .run = run};
