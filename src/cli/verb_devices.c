/* gqac devices: what target gpu can run on. */
#include "cli/cli.h"

static void print_line(int index, const gqac_device *d) {
    printf("%-6d %-8s %8.1f  %s, %s", index, d->driver, (double)d->memory / (1 << 30),
           cli_shown(d->name).s, cli_shown(d->version).s);
    if (*d->lacks)
        printf("; cannot be used, because it lacks: %s", d->lacks);
    printf("\n");
}

static json_t *device_json(int index, const gqac_device *d) {
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:b, s:s}", "index", index, "driver", d->driver,
                     "name", d->name, "version", d->version, "memory", (json_int_t)d->memory,
                     "usable", !*d->lacks, "lacks", d->lacks);
}

static gqac_status list(cli *c) {
    int n;
    GQAC_TRY(gqac_device_count(&n, &c->diag));
    json_t *rows = cli_json(c) ? json_array() : NULL;
    if (!rows)
        printf("%-6s %-8s %8s  %s\n", "device", "driver", "GiB", "name, version of the driver");
    for (int i = 0; i < n; i++) {
        gqac_device device;
        gqac_device_init(&device);
        const gqac_status status = gqac_device_at(i, &device, &c->diag);
        if (status != GQAC_OK) {
            json_decref(rows);
            return status;
        }
        if (rows)
            json_array_append_new(rows, device_json(i, &device));
        else
            print_line(i, &device);
    }
    if (rows)
        cli_print_json(rows);
    return GQAC_OK;
}

static int run(cli *c) {
    return cli_finish(c, list(c));
}

extern const gqac_cli_verb gqac_cli_verb_devices;
const gqac_cli_verb gqac_cli_verb_devices = {.name = "devices",
                                             .operands = "",
                                             .most = 0,
                                             .summary = "lists the devices of target gpu",
                                             .examples = "gqac devices\n"
                                                         "gqac devices --format json\n",
                                             .no_model = true,
                                             .run = run};
