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
 * Handles are opaque. Every pointer that a create/open call returns is owned by the caller and
 * freed by the matching free call; free calls accept NULL. A program is immutable and may be shared
 * by threads; a context and a sequence belong to one thread at a time. Nothing here prints or
 * exits.
 *
 * By subject: status.h (status codes and diagnostics), tensor.h (element types and tensors),
 * options.h (how a model is compiled), device.h (what target "gpu" runs on), log.h, monitor.h
 * (progress and ending a call), program.h (opening a model, its properties), compile.h (models to
 * files), inspect.h, threads.h, context.h, sequence.h (conversations and the step), run.h (the
 * graph as exported), files.h (digests, attachments, tensor files). Text (tokenizer, chat
 * templates, generation) is in text.h. */
#ifndef GQAC_GQAC_H
#define GQAC_GQAC_H

#include <gqac/compile.h>
#include <gqac/context.h>
#include <gqac/device.h>
#include <gqac/files.h>
#include <gqac/inspect.h>
#include <gqac/program.h>
#include <gqac/run.h>
#include <gqac/sequence.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, e.g. "0.1.0"; a constant, never NULL. */
GQAC_API const char *gqac_version(void);

#ifdef __cplusplus
}
#endif
#endif
