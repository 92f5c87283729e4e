/* Sequences of every kind whose rows are identified by tags: the tag of a position determines the
 * contents of every slot. */
#ifndef GQAC_TEST_KV_SUPPORT_ROWS_H
#define GQAC_TEST_KV_SUPPORT_ROWS_H

#include "kv/kv.h"

enum { KINDS = 5, WINDOW = 70, SLOTS = 5 };
enum { MOST_ROW = 66 * 2, MOST = 400 }; /* bytes of all heads of a row; tokens */
enum { THREAD_SLOT = 2 };               /* a slot whose rows every kind stores unchanged */

extern const char *const kinds[KINDS];
extern const kv_slot slots[SLOTS];

/* A test of every kind: test_of(kind). */
#define EVERY_KIND(test)                                                                           \
    static void test(void) {                                                                       \
        for (int k = 0; k < KINDS; k++)                                                            \
            test##_of(kinds[k]);                                                                   \
    }

extern unsigned seed;
unsigned any(unsigned n); /* 0 .. n-1 */

kv_pool *new_pool(void);
kv_sequence *new_sequence(kv_pool *pool, const char *kind, int64_t capacity);
bool is_kind(const kv_sequence *s, const char *kind);
/* Bits of the codes of a kind; 0: it stores rows unchanged. */
int bits_of(const char *kind);
/* For slots with a window: rows before this one are not kept in a sequence whose greatest length
 * was `length`. */
int64_t kept_from(const kv_sequence *s, int64_t length);

void write_tags(kv_sequence *s, int64_t position, int64_t count, const unsigned *tags);
/* True if rows [position, position + count) have these tags. In slots with a window, rows before
 * `kept` are NaN bytes. A read must write nothing else. */
bool holds_tags(const kv_sequence *s, int64_t position, int64_t count, const unsigned *tags,
                int64_t kept);
bool holds_byte(const kv_sequence *s, int64_t position, int64_t count, int byte);

/* Appends rows with tags from + position; true if all rows have such tags. */
gqac_status append(kv_sequence *s, int64_t count, unsigned from);
bool holds_from(const kv_sequence *s, unsigned from);

#endif
