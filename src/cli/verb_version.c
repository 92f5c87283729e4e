/* gqac version: the version; in json also how this program was built, and the target and the
 * instruction set that it runs on. */
#include "cli/cli.h"

static gqac_status print_json(cli *c) {
    gqac_options options;
    const char *level = NULL;
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(gqac_target_level(options.target, &level, &c->diag));
    cli_print_json(json_pack("{s:s, s:o, s:s, s:s?}", "version", gqac_version(), "build",
                             cli_build_json(), "target", options.target, "level", level));
    return GQAC_OK;
}

static int run(cli *c) {
    if (cli_json(c))
        return cli_finish(c, print_json(c));
    printf("gqac %s\n", gqac_version());
    return 0;
}

extern const gqac_cli_verb gqac_cli_verb_version;
const gqac_cli_verb gqac_cli_verb_version = {.name = "version",
                                             .operands = "",
                                             .most = 0,
                                             .summary = "prints the version",
                                             .examples = "gqac version\n"
                                                         "gqac version --format json\n",
                                             .run = run};
