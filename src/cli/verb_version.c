/* gqac version */
#include "cli/cli.h"

static int run(cli *c) {
    if (cli_json(c))
        cli_print_json(json_pack("{s:s}", "version", gqac_version()));
    else
        printf("gqac %s\n", gqac_version());
    return 0;
}

extern const gqac_cli_verb gqac_cli_verb_version;
const gqac_cli_verb gqac_cli_verb_version = {
    .name = "version", .operands = "", .most = 0, .summary = "prints the version", .run = run};
