/* Private to the compiler of JSON Schemas. Each schema within a schema becomes a rule. A list of
 * those that are not compiled yet takes the place of recursion. */
#ifndef GQAC_TEXT_GRAMMAR_SCHEMA_H
#define GQAC_TEXT_GRAMMAR_SCHEMA_H

#include "text/grammar/build.h"

typedef struct task {
    const json_t *node;
    uint32_t rule;
    const char *path; /* "#/properties/name", in the arena of the builder */
} task;

typedef struct schema {
    builder *b;
    const json_t *root;
    task *tasks; /* all schemas in the order in which they were met */
    size_t n, capacity;
    size_t compiled;  /* tasks */
    gqac_table known; /* index + 1 of a task by the address of its node */
    uint32_t formats; /* bits of those that are compiled */
    const char *path; /* of the current task */
} schema;

/* Parses JSON, whose size is limited; `what` names it in messages ("schema"). The caller releases
 * *root. */
gqac_status schema_parse(const char *what, const char *text, size_t length, json_t **root,
                         gqac_diag *diag);
/* Compiles a schema, and all that it refers to; its rule. */
uint32_t schema_compile(schema *s, const json_t *root);
/* The rule of a schema within the current one, whose path is that of the current one followed by
 * `format`. */
uint32_t schema_rule(schema *s, const json_t *node, const char *format, ...) GQAC_PRINTF(3, 4);
/* The same for a schema anywhere, with its whole path (in the arena; NULL: out of memory). */
uint32_t schema_task(schema *s, const json_t *node, const char *path);
/* Beside keyword `name`, only notes and `allowed` (NULL: none) are supported. */
void schema_alone(schema *s, json_t *node, const char *name, const char *allowed);
/* Bits of the types that "type" names, 0 if it is absent; those of a value. */
unsigned schema_types(schema *s, const json_t *node);
unsigned schema_type_of(const json_t *value);
/* Fails at the current schema, and keeps the failure in the builder. */
void schema_refuse(schema *s, gqac_status status, const char *rule, const char *format, ...)
    GQAC_PRINTF(4, 5);
/* A count such as minItems; `otherwise` if it is absent. */
uint32_t schema_count(schema *s, const json_t *node, const char *name, uint32_t otherwise);
/* A call of a rule of JSON itself: "json-any", "json-string", ... */
fragment schema_json(schema *s, const char *name);
/* The text of a value. */
fragment schema_value(schema *s, const json_t *value);

fragment schema_object(schema *s, const json_t *node);
fragment schema_array(schema *s, const json_t *node);
fragment schema_string(schema *s, const json_t *node);
/* "anyOf", "oneOf", "allOf"; "$ref". */
fragment schema_choice(schema *s, json_t *node, const char *name);
fragment schema_reference(schema *s, json_t *node);
/* "pattern". */
fragment schema_pattern(schema *s, const json_t *value);
fragment schema_number(schema *s, const json_t *node, bool whole);
/* Compiles the rules of JSON itself. */
void schema_open(schema *s);

/* Words: texts in UTF-8. */
typedef struct word_list {
    const char **list;
    size_t n, capacity;
} word_list;
bool schema_add_word(schema *s, word_list *w, const char *word);
/* One of the words; the list is sorted. */
fragment schema_words(schema *s, word_list *w);
/* The rest of a key after its first quote: characters that need no escape, and a quote. The key is
 * none of the words. */
fragment schema_other_key(schema *s, word_list *w);

#endif
