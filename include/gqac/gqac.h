/* gqac: compile an exported ONNX language model and run it, with the same bits however the tokens
 * are split, batched, threaded or cached.
 *
 *   gqac_program *program;  gqac_context *context;  gqac_sequence *sequence;  gqac_diag diag;
 *   gqac_options options;
 *   gqac_options_init(&options);
 *   gqac_program_open("model.onnx", &options, &program, &diag);
 *   gqac_context_create(program, 1, &context, &diag);
 *   gqac_sequence_create(program, NULL, &sequence, &diag);
 *   gqac_sequence_append(context, sequence, ids, count, 1, &diag);
 *   const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
 *
 * (One thread for the context; logits of the last token only. Checks of the returned statuses are
 * left out.) Handles are opaque. The caller owns every handle that a create or open call returns,
 * and frees it with the matching free call, which accepts NULL: sequences and contexts first, then
 * their program. A call that fails returns a status other than GQAC_OK, fills *diag (status.h) and
 * creates nothing. In these headers the possible statuses follow the description, each as "STATUS:
 * its cause"; NO_MEMORY can come from any call that allocates. A program is immutable, and threads
 * may share it; only one thread at a time may use a context or a sequence. Nothing here prints or
 * exits.
 *
 * By subject: status.h (status codes and diagnostics), tensor.h (element types and tensors),
 * options.h (how a model is compiled), limits.h, device.h (devices of target "gpu"), log.h,
 * monitor.h (progress, and ending a call early), stop.h (a monitor that reads a flag), program.h
 * (opening a model, and its properties), compile.h (compiling to a file), inspect.h, threads.h,
 * context.h, sequence.h (sequences and the step), candidate.h (what a step can return instead of
 * logits), snapshot.h (frozen copies of sequences, and their files), store.h (cached prefixes of
 * many sequences), run.h (stateless runs), equiv.h (the proof that no bit depends on how tokens are
 * split into calls), files.h (digests, attachments, tensor files). Text (tokenizer, chat templates,
 * generation) is in text.h, and the client of a Redis server, which is in a separate library, in
 * remote.h. */
#ifndef GQAC_GQAC_H
#define GQAC_GQAC_H

#include <gqac/compile.h>
#include <gqac/context.h>
#include <gqac/device.h>
#include <gqac/equiv.h>
#include <gqac/files.h>
#include <gqac/inspect.h>
#include <gqac/program.h>
#include <gqac/run.h>
#include <gqac/sequence.h>
#include <gqac/snapshot.h>
#include <gqac/stop.h>
#include <gqac/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, e.g. "0.1.0"; a constant, never NULL. */
GQAC_API const char *gqac_version(void);

#ifdef __cplusplus
}
#endif
#endif
