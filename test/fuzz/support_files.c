/* Valid files of the known models: text, ONNX, artefacts, snapshots, and a tensor. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

enum { PATH = 1024, LONGEST = 128 };

static bool write_snapshot(const char *folder, int which, const char *kind, int64_t length,
                           gqac_diag *diag) {
    int64_t ids[LONGEST];
    char path[PATH];
    gqac_sequence_options options;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    gqac_snapshot *snapshot = NULL;
    gqac_sequence_options_init(&options);
    options.kv = kind;
    for (int64_t i = 0; i < length; i++)
        ids[i] = (i * 5 + 1) % 3;
    gqac_status status = gqac_sequence_create(fuzz_program(which), &options, &sequence, diag);
    if (status == GQAC_UNSUPPORTED) /* it has no weights to quantise */
        return true;
    if (status == GQAC_OK)
        status = gqac_context_create(fuzz_program(which), 1, &context, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, sequence, ids, length, 0, diag);
    if (status == GQAC_OK)
        status = gqac_snapshot_take(sequence, &snapshot, diag);
    snprintf(path, sizeof path, "%s/%d-%s-%d.gqs", folder, which, kind, (int)length);
    if (status == GQAC_OK)
        status = gqac_snapshot_save(snapshot, path, diag);
    FILE *f = status == GQAC_OK ? fopen(path, "r+b") : NULL;
    if (f && which) /* see fuzz_snapshot.c */
        fputc(which, f);
    if (f)
        fclose(f);
    gqac_snapshot_free(snapshot);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    return status == GQAC_OK;
}

static bool write_model(const char *folder, int which, gqac_emit emit, const char *ending,
                        gqac_diag *diag) {
    char path[PATH];
    gqac_options options;
    gqac_model_bytes bytes;
    const char *text = fuzz_program_text(which);
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, text, strlen(text));
    options.bytes = &bytes;
    options.stop_after = emit == GQAC_EMIT_TEXT ? "tidy" : NULL;
    snprintf(path, sizeof path, "%s/%d.%s", folder, which, ending);
    return gqac_compile("m.gq", &options, emit, path, diag) == GQAC_OK;
}

void fuzz_write_files(const char *folder) {
    static const char *const kinds[] = {"contiguous", "windowed", "quantised"};
    static const int64_t lengths[] = {1, 5, 66};
    static float data[6] = {1, 2, 3};
    const gqac_tensor tensor = {.dtype = GQAC_F32, .rank = 2, .dims = {2, 3}, .data = data};
    char path[PATH];
    gqac_diag diag = {0};
    snprintf(path, sizeof path, "%s/0.npy", folder);
    bool good = gqac_npy_write(path, &tensor, &diag) == GQAC_OK;
    for (int which = 0; which < FUZZ_PROGRAMS; which++) {
        good = good && write_model(folder, which, GQAC_EMIT_TEXT, "gq", &diag) &&
               write_model(folder, which, GQAC_EMIT_ONNX, "onnx", &diag) &&
               write_model(folder, which, GQAC_EMIT_GQAC, "gqac", &diag);
        for (int i = 0; i < 9; i++)
            good = good && write_snapshot(folder, which, kinds[i / 3], lengths[i % 3], &diag);
    }
    if (!good) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.what);
        fuzz_broken("a legal file");
    }
}
