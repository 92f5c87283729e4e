/* Private to parse*.c: the state of the parser, and functions that its files share.
 *
 * The buffers are reused, by nested graphs too, so a function uses or copies their contents before
 * it parses another construct. */
#ifndef GQAC_IR_PARSE_IMPL_H
#define GQAC_IR_PARSE_IMPL_H

#include "ir/text.h"

typedef struct ir_parser {
    ir_lexer lexer;
    ir_schema_lookup *schemas;
    ir_module *module;
    int depth;       /* of the graph being parsed; the main graph is 0 */
    gqac_str word;   /* the last word or string */
    gqac_str names;  /* const char *[]: names of a node's outputs or of a graph's results */
    gqac_str values; /* ir_value *[]: a node's inputs or a graph's results */
    gqac_str items;  /* elements of a list attribute */
} ir_parser;

gqac_status ir_parse_oom(const ir_parser *p);
gqac_status ir_parse_new_name(ir_parser *p, const char **name); /* %name, not used before */
gqac_status ir_parse_dtype(ir_parser *p, gqac_dtype *dtype);
gqac_status ir_parse_type(ir_parser *p, ir_type *type);
/* Parses type and data of a tensor; digest not NULL: there is an "=" between them, and a digest may
 * stand for the data. */
gqac_status ir_parse_tensor(ir_parser *p, gqac_tensor *tensor, const char **digest);
gqac_status ir_parse_graph(ir_parser *p, ir_node *parent, int depth, ir_graph **out);
/* Parses "{name=value, ...}" or nothing; `at` is where the node begins, for messages. */
gqac_status ir_parse_attrs(ir_parser *p, ir_node *node, const char *at);

#endif
