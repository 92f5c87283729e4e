/* Speculation: drafts of the next ids, which change no answer.
 *
 * With gqac_generate_request.speculate N, gqac_generate drafts up to N ids ahead and computes them
 * in the step of the id before. By default the drafts are looked up: gqac searches prompt and
 * answer for the last ids, and drafts what followed them there. With `draft`, a second, smaller
 * model chooses them. Each id of the answer is chosen from its own row of logits by the same rules
 * and the same random bits as without drafts; drafts are accepted as long as they are the chosen
 * ids, and the rows of the others are removed again. So the answer is the same, but takes fewer
 * steps. The number of drafts depends on how many were accepted and on measured times; where drafts
 * do not pay off there are none, except for occasional trials. Metrics count them. */
#ifndef GQAC_SPECULATE_H
#define GQAC_SPECULATE_H

#include <gqac/generate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Maximum number of drafts of a text in one step: every kind of cache can be rewound by so many. */
enum { GQAC_DRAFTS_MOST = 64 };

/* Returns why gqac_generate makes no drafts in this session, in a few words without a period: kind
 * "off", a model that returns one row of logits, or one that is not split-safe
 * (gqac_program_mixing). NULL: it can draft. */
GQAC_API const char *gqac_session_no_drafts(const gqac_session *session);

/* Checks that the ids of a second model mean the same as those of the first, so that its drafts can
 * be of use. Where both texts have a tokenizer, every id that both vocabularies have must stand for
 * the same bytes in both tokenizers; else (text NULL, no tokenizer, or one that was refused) the
 * vocabularies must have the same size. USAGE: they differ, and the diag says where, or the second
 * program is stateless; NO_MEMORY. */
GQAC_API gqac_status gqac_check_draft(const gqac_program *program, const gqac_text *text,
                                      const gqac_program *draft, const gqac_text *draft_text,
                                      gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
