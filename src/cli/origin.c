/* Where numbers come from: the build of this program, and the machine. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "commit.h" /* made by cmake/commit.cmake */

#ifdef __clang__
#define COMPILER __VERSION__ /* "Debian Clang 14.0.6" */
#else
#define COMPILER "gcc " __VERSION__
#endif

json_t *cli_build_json(void) {
    return json_pack("{s:s?, s:s}", "commit", *GQAC_COMMIT ? GQAC_COMMIT : NULL, "compiler",
                     COMPILER);
}

/* The model of the processor as Linux names it on x86; NULL if it does not. */
static json_t *processor_json(void) {
    static const char key[] = "model name";
    char line[256];
    json_t *name = json_null();
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && json_is_null(name) && fgets(line, sizeof line, file)) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, key, sizeof key - 1) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        name = cli_text_json(colon + 1 + strspn(colon + 1, " "));
    }
    if (file)
        (void)fclose(file);
    return name;
}

json_t *cli_host_json(void) {
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    return json_pack("{s:o, s:o, s:I}", "name", cli_text_json(name), "processor", processor_json(),
                     "processors", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
}
