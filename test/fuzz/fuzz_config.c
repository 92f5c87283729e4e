/* genai_config.json. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "llm/llm.h"

static gqac_status run(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    gqac_text_settings settings = genai_config_defaults;
    const char *decoder = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = 0;
    gqac_status status = GQAC_LIMIT;
    if (size <= FOLDER_CONFIG_BYTES)
        status =
            fuzz_check(genai_config_read(copy, size, arena, &settings, &decoder, &diag), &diag);
    for (int i = 0; status == GQAC_OK && i < settings.n_io_names; i++)
        if (!settings.io_names[i].name || !settings.io_names[i].file_name)
            fuzz_broken("a name of an input is missing");
    gqac_arena_free(arena);
    free(copy);
    return status;
}

const fuzz_target fuzz_target_config = {"config", run, NULL};
