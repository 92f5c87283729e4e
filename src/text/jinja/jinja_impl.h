/* Shared by the files of the template interpreter: values, the syntax tree, the state of a render.
 *
 * Everything lies in arenas: the tree in that of the template, the values of a render in that of
 * the render. Values are immutable, except for namespaces, cyclers, joiners and loops. A container
 * stores its height, so that walks over values end. The first failure is kept in the state; later
 * calls then return undefined values at once, and every loop calls jinja_ok or jinja_charge. */
#ifndef GQAC_TEXT_JINJA_JINJA_IMPL_H
#define GQAC_TEXT_JINJA_JINJA_IMPL_H

#include "base/arena.h"
#include "base/str.h"
#include "text/jinja/jinja.h"
#include "text/unicode.h"

/* Limits, far above what real templates need. */
enum {
    JINJA_SOURCE = 1 << 20,  /* bytes of a template */
    JINJA_NESTING = 64,      /* nested expressions, and nested tags, in a source */
    JINJA_HEIGHT = 150,      /* of a syntax tree */
    JINJA_DEPTH = 600,       /* of evaluation */
    JINJA_VALUE_HEIGHT = 64, /* nested lists and dicts */
    JINJA_TEXT = 1 << 25,    /* bytes of one text, and of the output */
    JINJA_MEMORY = 1 << 27,  /* bytes of all values of a render */
    JINJA_RANGE = 100000,    /* numbers of a range; what the sandbox of Jinja allows */
    JINJA_PARAMS = 6,
    JINJA_NAMES = 1000 /* parameters of a macro, and arguments of a call with names */
};

/* ---- values -------------------------------------------------------------- */

typedef enum jtype {
    J_MISSING, /* an argument that was not given */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_RANGE,
    J_ITER, /* the result of map, select, reverse; reading it uses it up */
    J_VIEW, /* keys, values or items of a dict */
    J_NAMESPACE,
    J_LOOP,
    J_MACRO,
    J_BUILTIN,
    J_METHOD,
    J_CYCLER,
    J_JOINER
} jtype;

typedef struct jvalue jvalue;
typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jnode jnode;
typedef struct jscope jscope;
typedef struct jrun jrun;

typedef struct jrange {
    int64_t start, stop, step, count;
} jrange;
typedef struct jiter {
    const jlist *list;
    size_t at;
} jiter;
typedef struct jloop jloop;
typedef struct jmacro jmacro;
typedef struct jbuiltin jbuiltin;
typedef struct jmethod jmethod;
typedef struct jcycler jcycler;

struct jvalue {
    jtype type;
    bool flag; /* J_BOOL: the value; J_STR: safe markup; J_UNDEFINED: forbidden by the sandbox;
                  J_TUPLE: made by groupby, so its parts have names */
    size_t n;  /* J_STR, J_UNDEFINED: bytes at s; J_VIEW: a jview */
    union {
        int64_t i;
        double f;
        const char *s; /* J_UNDEFINED: the name that was looked up */
        const jlist *list;
        jdict *dict; /* J_DICT, J_VIEW, J_NAMESPACE */
        const jrange *range;
        jiter *iter;
        jloop *loop;
        const jmacro *macro;
        const jbuiltin *builtin;
        const jmethod *method;
        jcycler *cycler; /* J_CYCLER, J_JOINER */
    };
};
enum { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS };

struct jlist {
    size_t n;
    unsigned height;
    jvalue *v;
};
typedef struct jpair {
    jvalue k, v;
} jpair;
struct jdict {
    size_t n, capacity;
    unsigned height;
    jpair *p;
};
struct jloop {
    jvalue over; /* list */
    size_t at, depth;
    jvalue changed; /* the arguments of the last loop.changed */
};
struct jmacro {
    const jnode *node; /* N_MACRO or N_CALLBLOCK */
    jscope *scope;     /* where it was defined */
};
struct jcycler {
    const jlist *items; /* of a joiner: the separator */
    size_t at;
};

/* Arguments of a call. */
typedef struct jargs {
    size_t n, n_named;
    jvalue *v;
    jpair *named; /* keys are strings */
} jargs;

/* A filter, test, method or function. `params` are names in order, "sep? maxsplit?": '?' marks an
 * optional one (J_MISSING if absent); a leading '/' forbids named arguments; "*" means that the
 * function reads `args` itself. `run` NULL: Python has it, but gqac does not. */
struct jbuiltin {
    const char *name, *params;
    jvalue (*run)(jrun *r, jvalue self, const jvalue *p, const jargs *args);
};
struct jmethod {
    const jbuiltin *row;
    jvalue self;
};

#define JINJA_UNUSED __attribute__((unused))
/* The head of the function of a row: r is the render, v the value that it is called on, p the
 * arguments by parameter, and args all arguments. */
#define JINJA_FUNCTION(name)                                                                       \
    static jvalue name(JINJA_UNUSED jrun *r, JINJA_UNUSED jvalue v, JINJA_UNUSED const jvalue *p,  \
                       JINJA_UNUSED const jargs *args)
#define JINJA_EXPRESSION(name, expression)                                                         \
    JINJA_FUNCTION(name) {                                                                         \
        return expression;                                                                         \
    }

/* ---- tree ---------------------------------------------------------------- */

typedef enum jkind {
    N_CONST,
    N_NAME,
    N_LIST,   /* a: chain */
    N_TUPLE,  /* a: chain */
    N_DICT,   /* a: chain of key, value, key, ... */
    N_UNARY,  /* op a */
    N_BINARY, /* a op b */
    N_CONCAT, /* a: chain */
    N_AND,
    N_OR,
    N_COMPARE, /* a, then b: chain of N_OPERAND (op, a) */
    N_OPERAND,
    N_COND, /* a: test, b: then, c: else or NULL */
    N_ATTR,
    N_ITEM,
    N_SLICE,  /* a:b:c */
    N_CALL,   /* a(b: chain of N_ARG) */
    N_ARG,    /* s: name or NULL; op: 0, 1 for *a, 2 for **a */
    N_FILTER, /* a (NULL: the block's text) | s(b) */
    N_TEST,   /* a is s(b) */
    N_NSREF,  /* a.s as a target */
    N_TEXT,
    N_PRINT,
    N_IF,     /* a: chain of N_BRANCH */
    N_BRANCH, /* a: test or NULL, b: body */
    N_FOR,    /* for a in b if c: d, else e */
    N_SET,    /* a = b */
    N_SETBLOCK,
    N_MACRO,       /* s(a: chain of N_PARAM): b */
    N_PARAM,       /* s = a */
    N_CALLBLOCK,   /* call(a) c: b */
    N_FILTERBLOCK, /* a: filters, b: body */
    N_WITH,        /* a: targets, b: values, c: body */
    N_SCOPE,       /* a: body */
    N_BREAK,
    N_CONTINUE
} jkind;

struct jnode {
    uint8_t kind, op;
    uint16_t height;
    uint32_t line;
    const char *s;
    size_t n;
    jnode *next; /* in a chain */
    jnode *a, *b, *c, *d, *e;
    const jbuiltin *row; /* of a filter or test */
    jvalue value;        /* of a constant */
};

/* Operators that are not one character. */
enum { JOP_FLOORDIV = 1, JOP_POW, JOP_EQ, JOP_NE, JOP_LE, JOP_GE, JOP_IN, JOP_NOT_IN, JOP_NOT };

/* ---- tokens and parser --------------------------------------------------- */

typedef enum jtoken_type {
    T_EOF,
    T_TEXT,
    T_PRINT,
    T_PRINT_END,
    T_TAG,
    T_TAG_END,
    T_NAME,
    T_STR,
    T_INT,
    T_FLOAT,
    T_OP
} jtoken_type;
typedef struct jtoken {
    jtoken_type type;
    uint8_t op;
    uint32_t line;
    const char *s;
    size_t n;
    int64_t i;
    double f;
} jtoken;

/* The state of reading a template. After a failure the tokens end. */
typedef struct jparser {
    gqac_arena *arena;
    gqac_diag *diag;
    gqac_status status;
    const char *s; /* the source, newlines are '\n' */
    size_t n;
    jtoken *tokens;
    size_t n_tokens, capacity, at;
    unsigned nesting, tags, loops;
} jparser;

/* Keeps the first failure; the line is `where`. */
void jinja_refuse(jparser *p, gqac_status status, uint32_t line, const char *fmt, ...)
    GQAC_PRINTF(4, 5);
void *jinja_keep(jparser *p, size_t bytes); /* zeroed; NULL after a failure */
void jinja_lex(jparser *p);
/* The escapes of a string literal of Python. */
void jinja_unescape(jparser *p, jtoken *token);
jnode *jinja_parse_body(jparser *p); /* the whole template */
jnode *jinja_parse_expr(jparser *p);
jnode *jinja_parse_tuple(jparser *p, bool conditional);
jnode *jinja_parse_target(jparser *p, bool namespaces, bool tuple);
jnode *jinja_parse_filters(jparser *p, jnode *input, bool begun);
jnode *jinja_node(jparser *p, jkind kind, uint32_t line);
/* Refuses a node whose name one before it in the chain has; node->s NULL: it has no name. */
void jinja_check_once(jparser *p, const jnode *first, const jnode *node);
jnode *jinja_seal(jparser *p, jnode *node); /* when its children are known: checks the height */
bool jinja_nest(jparser *p); /* one level of nesting; call jinja_unnest even when it fails */
void jinja_unnest(jparser *p);
bool jinja_named_constant(const jtoken *t, jvalue *value); /* true, none, ... */
/* Parses elements with `element` up to the end of a tuple; one element without a comma is not a
 * tuple. */
jnode *jinja_parse_elements(jparser *p, bool parentheses, bool flag,
                            jnode *(*element)(jparser *p, bool flag));
const jtoken *jinja_peek(const jparser *p);
const jtoken *jinja_take(jparser *p);
bool jinja_is_name(const jtoken *token, const char *name);
bool jinja_take_name(jparser *p, const char *name);
bool jinja_take_op(jparser *p, uint8_t op);
void jinja_expect_op(jparser *p, uint8_t op);

/* ---- a render ------------------------------------------------------------ */

struct jscope {
    jscope *parent;
    jdict *names;
};
struct jrun {
    gqac_arena *arena;
    gqac_diag *diag;
    gqac_status status;
    gqac_str *out;
    size_t out_base, steps, most_steps;
    unsigned depth, loops;
    uint32_t line;
    jscope *scope;
    jvalue block; /* the text of a filter block */
    struct {      /* texts that can grow where they are: the `free` bytes at `end` are not used */
        char *end;
        size_t free; /* bytes */
    } tails[4];
    unsigned next_tail;
};

static inline bool jinja_ok(const jrun *r) {
    return r->status == GQAC_OK;
}
/* Keeps the first failure; returns undefined. */
jvalue jinja_fail(jrun *r, gqac_status status, const char *fmt, ...) GQAC_PRINTF(3, 4);
/* Counts steps of work; false after a failure, or when they exceed the maximum. */
bool jinja_charge(jrun *r, size_t steps);
bool jinja_charge_text(jrun *r, size_t bytes);
bool jinja_enter(jrun *r); /* one level deeper; call jinja_leave even when it returns false */
void jinja_leave(jrun *r);
void *jinja_alloc(jrun *r, size_t count, size_t size); /* zeroed; NULL is a failure */

/* jinja_value.c */
extern const jvalue jinja_none, jinja_undefined, jinja_missing;
jvalue jinja_bool(bool b);
jvalue jinja_int(int64_t i);
jvalue jinja_float(double f);
jvalue jinja_view(const char *s, size_t n); /* no copy */
jvalue jinja_literal(const char *s);        /* no copy */
jvalue jinja_copy(jrun *r, const char *s, size_t n);
jvalue jinja_unknown(const char *name, size_t n);                  /* undefined */
jvalue jinja_list(jrun *r, jtype type, const jvalue *v, size_t n); /* copies */
jvalue jinja_iter(jrun *r, jvalue list);
jvalue jinja_dict(jrun *r, jtype type, size_t capacity);
void jinja_put(jrun *r, jdict *dict, jvalue key, jvalue value);    /* replaces or appends */
void jinja_append(jrun *r, jdict *dict, jvalue key, jvalue value); /* the key is new */
jvalue *jinja_get(jrun *r, const jdict *dict, jvalue key);         /* NULL: absent */
jvalue *jinja_get_n(jrun *r, const jdict *dict, const char *key, size_t n);
jvalue jinja_dict_view(jvalue dict, size_t kind); /* JVIEW_... */
jvalue jinja_from_json(jrun *r, const json_t *json);
jvalue jinja_or(jvalue argument, jvalue absent); /* the argument, or what its absence means */
int64_t jinja_int_or(jrun *r, jvalue argument, int64_t absent); /* fails for other types */
bool jinja_true(jrun *r, jvalue v);
bool jinja_equal(jrun *r, jvalue a, jvalue b);
int jinja_order(jrun *r, jvalue a, jvalue b); /* <0, 0, >0; 2: not a number */
bool jinja_contains(jrun *r, jvalue item, jvalue in);
bool jinja_is_number(jvalue v); /* and bools */
bool jinja_hashable(jrun *r, jvalue v);
double jinja_number(jvalue v);
bool jinja_iterable(jvalue v);
/* All elements of a value, as a list; reads iterators to their end. Fails if the value cannot be
 * iterated. */
jvalue jinja_elements(jrun *r, jvalue v);
bool jinja_length(jrun *r, jvalue v, size_t *n); /* false: has none */
jvalue jinja_range_at(const jrange *range, size_t at);
const char *jinja_type(jvalue v); /* "str", as Python calls it */

/* jinja_print.c */
typedef struct jformat {
    bool json, ascii, sort;
    int indent; /* -1: none */
    jvalue item_separator, key_separator, indent_text;
} jformat;
void jinja_repr(jrun *r, gqac_str *out, jvalue v);
void jinja_str(jrun *r, gqac_str *out, jvalue v);
jvalue jinja_to_str(jrun *r, jvalue v); /* a J_STR */
void jinja_json(jrun *r, gqac_str *out, jvalue v, const jformat *format, unsigned level);
void jinja_float_text(double f, bool json, char text[40]);

/* jinja_text.c: texts by code point */
void jinja_out(jrun *r, gqac_str *out, const char *s, size_t n); /* append within limits */
void jinja_out_char(jrun *r, gqac_str *out, int32_t c);
jvalue jinja_taken(jrun *r, gqac_str *out); /* a copy; frees it */
int32_t jinja_char(const char *s, size_t n, size_t *bytes);
size_t jinja_count(jrun *r, jvalue text);
size_t jinja_offset(jrun *r, jvalue text, size_t index); /* byte of the index-th character */
size_t jinja_find(const char *s, size_t n, const char *what, size_t m); /* SIZE_MAX: none */
jvalue jinja_concat(jrun *r, jvalue a, jvalue b);
jvalue jinja_repeat(jrun *r, jvalue text, int64_t times);
jvalue jinja_upper(jrun *r, jvalue text);
jvalue jinja_lower(jrun *r, jvalue text);
jvalue jinja_capitalize(jrun *r, jvalue text, bool words);
jvalue jinja_swapcase(jrun *r, jvalue text);
jvalue jinja_strip(jrun *r, jvalue text, jvalue chars, bool left, bool right);
jvalue jinja_replace(jrun *r, jvalue text, jvalue old, jvalue by, int64_t count);
jvalue jinja_escape(jrun *r, jvalue text);
jvalue jinja_lines(jrun *r, jvalue text, bool keep);
bool jinja_is_space(int32_t c);
bool jinja_printable(int32_t c);
bool jinja_is(jvalue text, const char *what);

/* jinja_format.c */
jvalue jinja_percent(jrun *r, jvalue format, jvalue args); /* format % args */
jvalue jinja_str_format(jrun *r, jvalue format, const jargs *args);

/* jinja_eval.c */
jvalue jinja_eval(jrun *r, const jnode *node);
void jinja_args(jrun *r, const jnode *chain, jargs *args);
jvalue jinja_attribute(jrun *r, jvalue of, const char *name, size_t n);
jvalue jinja_item(jrun *r, jvalue of, jvalue key);
jvalue jinja_call(jrun *r, jvalue callee, const jargs *args);
jvalue jinja_call_row(jrun *r, const jbuiltin *row, jvalue self, const jargs *args);
jvalue jinja_slice(jrun *r, jvalue of, jvalue low, jvalue high, jvalue step);
jvalue jinja_backwards(jrun *r, jvalue of); /* of[::-1] */
jvalue jinja_lookup(jrun *r, const char *name, size_t n);

/* jinja_op.c */
jvalue jinja_wrong(jrun *r, const char *what, jvalue v); /* v cannot be <what> */
jvalue jinja_binary(jrun *r, uint8_t op, jvalue a, jvalue b);
bool jinja_compare(jrun *r, uint8_t op, jvalue a, jvalue b);

/* jinja_exec.c */
void jinja_run(jrun *r, const jnode *body, const json_t *variables); /* a whole template */
jvalue jinja_call_macro(jrun *r, const jmacro *macro, const jargs *args);
/* Of a macro, or of what a call tag passes as `caller`: the parameter of that name (NULL: none);
 * whether its body reads the name, before it writes it; and whether calls define it, as `kwargs`,
 * `varargs` or `caller`. */
const jnode *jinja_find_param(const jnode *macro, const char *name);
bool jinja_reads(jrun *r, const jnode *macro, const char *name);
bool jinja_catches(jrun *r, const jnode *macro, const char *name);

/* Rows by name; NULL: not known. */
const jbuiltin *jinja_find_row(const jbuiltin *rows, size_t n, const char *name, size_t length);
#define JINJA_FIND(rows, name, length)                                                             \
    jinja_find_row(rows, sizeof(rows) / sizeof *(rows), name, length)
const jbuiltin *jinja_filter(const char *name, size_t n);
const jbuiltin *jinja_list_filter(const char *name, size_t n);
const jbuiltin *jinja_test(const char *name, size_t n);
const jbuiltin *jinja_global(const char *name, size_t n);
const jbuiltin *jinja_str_method(const char *name, size_t n);
const jbuiltin *jinja_method(jvalue of, const char *name, size_t n, bool *forbidden);

#endif
