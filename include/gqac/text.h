/* Text in, text out: the files of a model folder beside the graph (genai_config.json,
 * tokenizer.json, the chat template), and the loop that generates an answer.
 *
 *   gqac_text *text;  gqac_session *session;  gqac_generation *said;
 *   gqac_text_open("model folder", GQAC_TEXT_ALL, &text, &diag);
 *   gqac_text_tokenize(text, "Once", 4, true, &ids, &n, &diag);
 *   gqac_session_create(program, NULL, &session, &diag);
 *   gqac_generate_request request;
 *   gqac_generate_request_init(&request, text, session, ids, n);
 *   gqac_generate(context, text, 1, &request, &said, &diag);
 *   puts(said->text);
 *
 * A gqac_text is immutable, and threads may share it; only one thread at a time may use a session
 * (session.h), a stream or a reply (tokenizer.h). Checks of statuses and free calls are left out
 * above. Everything here is built on gqac.h alone. Texts are UTF-8. INVALID_INPUT: a text is not
 * UTF-8; *diag has the offset of the first bad byte. */
#ifndef GQAC_TEXT_H
#define GQAC_TEXT_H

#include <gqac/calls.h>
#include <gqac/constraint.h>
#include <gqac/generate.h>
#include <gqac/gqac.h>
#include <gqac/sample.h>
#include <gqac/schedule.h>
#include <gqac/seq2seq.h>
#include <gqac/session.h>
#include <gqac/speculate.h>
#include <gqac/tokenizer.h>

#endif
