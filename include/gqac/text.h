/* Text in and text out of a model: what lies in a model folder beside the graph (genai_config.json,
 * tokenizer.json, the chat template) and the loop that generates.
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
 * A gqac_text is immutable and may be shared by threads; a session and a stream belong to one
 * thread at a time. Everything here is built on gqac.h alone. Texts are UTF-8; a text that is not
 * is INVALID_INPUT with the offset of the first bad byte. */
#ifndef GQAC_TEXT_H
#define GQAC_TEXT_H

#include <gqac/generate.h>
#include <gqac/gqac.h>
#include <gqac/seq2seq.h>
#include <gqac/tokenizer.h>

#endif
