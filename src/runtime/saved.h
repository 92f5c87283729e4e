/* The form of a saved sequence, in memory or in a file: its header, and the checks that need no
 * model. saved.c describes the layout.
 *
 * There are two forms. Snapshots have canonical rows, which any target and version can read. What
 * is baked into an artefact is an image of blocks (kv.h), which is read in place. */
#ifndef GQAC_RUNTIME_SAVED_H
#define GQAC_RUNTIME_SAVED_H

#include "base/file.h"
#include "runtime/sequence.h"

typedef enum saved_form { SAVED_CANONICAL, SAVED_IMAGE, SAVED_FORMS } saved_form;

typedef enum saved_section {
    SAVED_GEOMETRY,
    SAVED_POSITIONS,
    SAVED_IDS,
    SAVED_ROWS,
    SAVED_STATES,
    SAVED_SECTIONS
} saved_section;

typedef struct saved_part {
    uint64_t offset, bytes;
    unsigned char digest[32];
} saved_part;

typedef struct saved_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t bytes;            /* all bytes, header included */
    unsigned char program[32]; /* fingerprint of the model; of an image see saved.c */
    int64_t tokens;            /* tokens that have rows */
    int64_t missing, given;    /* as in gqac_sequence */
    int64_t pinned, final_length;
    uint64_t guards;
    int64_t states;
    int64_t slots;
    char kind[16], profile[96]; /* of the sequence; NUL-terminated */
    saved_part sections[SAVED_SECTIONS];
    int64_t kept;             /* slots with a window have rows from this position on only */
    unsigned char digest[32]; /* of the header with zeros here */
} saved_header;

/* A digest of what determines the bits of rows: profile, graph and weights. The first call for a
 * program reads all weights. */
gqac_status saved_fingerprint(const gqac_program *program, unsigned char digest[32],
                              gqac_diag *diag);
/* Checks the header of a file of `bytes` bytes, the first `n` bytes of which are at `data`: its
 * checksum, and that lengths and offsets of sections fit. INVALID_INPUT: they do not. */
gqac_status saved_check_header(const void *data, size_t n, uint64_t bytes, saved_form form,
                               saved_header *header, gqac_diag *diag);
/* Checks that the header of a canonical form describes a sequence of the program. USAGE: it was
 * saved from another model, or with another profile; OUT_OF_RANGE: it has more tokens than the
 * program has positions; INVALID_INPUT: its numbers are not possible. */
gqac_status saved_check_program(const gqac_program *program, const saved_header *header,
                                gqac_diag *diag);
/* Checks the checksum of a section; `data` is the file from its beginning to the end of the
 * section. INVALID_INPUT: the section is damaged. */
gqac_status saved_check_section(const unsigned char *data, const saved_header *header,
                                saved_section section, gqac_diag *diag);
/* The same, for a digest that the caller has computed. */
gqac_status saved_check_digest(const unsigned char digest[32], const saved_header *header,
                               saved_section section, gqac_diag *diag);
/* Makes a sequence of a canonical form at `data`, whose header saved_check_program has accepted;
 * the rest is checked first, as gqac_sequence_load does. */
gqac_status saved_load(const gqac_program *program, const saved_header *header, const void *data,
                       gqac_sequence **sequence, gqac_diag *diag);
/* True if the n bytes at `data` begin like a header of the canonical form. */
bool saved_begins(const void *data, size_t n);

/* Sets the bytes that saved_write needs. */
gqac_status saved_bytes(const gqac_sequence *sequence, saved_form form, size_t *bytes,
                        gqac_diag *diag);
/* Sets *bytes to the maximum size of a canonical form of that many tokens, none of them imported.
 * False: an overflow. */
bool saved_most(const gqac_program *program, int64_t tokens, size_t *bytes);
/* Writes a sequence to memory that is aligned to 8 bytes. INVALID_INPUT: there are too few bytes.
 */
gqac_status saved_write(const gqac_sequence *sequence, saved_form form, void *data, size_t bytes,
                        gqac_diag *diag);
/* Makes a sequence that reads an image in place: memory that is aligned to 64 bytes and outlives
 * the sequence, all its forks, and whatever shares their blocks. No step may extend the sequence
 * itself. Everything is checked first. INVALID_INPUT: it is damaged, or its blocks have another
 * layout; USAGE: it was saved from another model, or with another profile. */
gqac_status saved_map(const gqac_program *program, const void *data, size_t bytes,
                      gqac_sequence **sequence, gqac_diag *diag);

#endif
