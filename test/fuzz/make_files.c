/* Writes seeds: the valid files of the known models, and artefacts of the other models, if these
 * can be compiled: make_files FOLDER [MODEL...]. */
#include "fuzz/fuzz.h"

#include <stdio.h>

static void write_artefact(const char *folder, int number, const char *model) {
    char path[1024];
    gqac_options options;
    gqac_diag diag = {0};
    gqac_options_init(&options);
    options.stateless = true;
    snprintf(path, sizeof path, "%s/other-%d.gqac", folder, number);
    (void)fuzz_check(gqac_compile(model, &options, GQAC_EMIT_GQAC, path, &diag), &diag);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    fuzz_write_files(argv[1]);
    for (int i = 2; i < argc; i++)
        write_artefact(argv[1], i, argv[i]);
    return 0;
}
