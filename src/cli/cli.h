/* The command line: one file verb_<name>.c for each verb, which exports one row; CMake collects
 * them. stdout carries results only; stderr carries errors and progress. */
#ifndef GQAC_CLI_CLI_H
#define GQAC_CLI_CLI_H

#include <gqac/gqac.h>
#include <gqac/text.h>
#include <jansson.h>
#include <stdio.h>

/* The values of --kv: kinds of cache. */
#define CLI_KINDS    "contiguous|paged|windowed|quantised|quantised4|basic|int8|int4"
#define CLI_KV_KINDS "[" CLI_KINDS "|off]"
/* Part of the help of each flag that may be given more than once. */
#define CLI_REPEATS "may be repeated"

typedef struct cli_flag {
    const char *name;  /* without the dashes */
    const char *value; /* name of the value in the help; NULL: a switch. "a|b": one of these words;
                          "[a|b]": the same, and the value may be left out */
    const char *help;
} cli_flag;

typedef struct cli cli;

typedef struct gqac_cli_verb {
    const char *name;
    const char *operands; /* "MODEL", "DIR ..." or "" */
    int least, most;      /* operands; most -1: any number */
    const char *summary;
    const char *details;   /* lines after the summary in --help; NULL: none */
    const char *examples;  /* command lines */
    const cli_flag *flags; /* ends with name NULL; NULL: only the common ones */
    const char *formats;   /* words of --format; NULL: "table json" */
    bool no_model;         /* it opens no graph, and does not take the common flags for that */
    int (*run)(cli *c);    /* exit code */
} gqac_cli_verb;

/* The progress of calls of one kind: see progress.c. */
typedef struct cli_progress {
    gqac_monitor monitor;
    const char *what; /* NULL: nothing is shown */
    int64_t unit;     /* what is shown is `done` divided by this; 1: tokens, else MiB */
    bool terminal, shown;
    bool finishing; /* Ctrl-C ends the answer after its token, not the call */
    double began, reported;
    int64_t done;
} cli_progress;

extern const gqac_cli_verb *const gqac_cli_verbs[]; /* made by CMake; ends with NULL */

struct cli {
    const gqac_cli_verb *verb;
    int n_operands;
    const char **operands;
    int n_given; /* flags in order, repeats kept */
    struct cli_given {
        const char *name, *value;
        bool brief; /* typed as cli_brief has it, "-n" */
    } * given;
    gqac_limits limits; /* of --limit; see cli_limits */
    bool confined;      /* --sandbox holds */
    char *read;         /* what cli_take_text read */
    char *choice;       /* the optional value that was given, without blanks around it */
    gqac_text *config;  /* the settings that cli_model found beside the graph */
    gqac_diag diag;
    cli_progress model, steps;
};

/* Value of a flag (the last one, if it is repeated), else of the environment variable GQAC_<FLAG>,
 * else NULL; "1" for a switch, "" for a value that was left out. */
const char *cli_value(const cli *c, const char *flag);
/* True if the flag itself is on the command line; its environment variable may be set for other
 * commands. */
bool cli_given(const cli *c, const char *flag);
bool cli_switch(const cli *c, const char *flag);
/* Value i of a flag that may be repeated; NULL after the last. */
const char *cli_repeat(const cli *c, const char *flag, int i);
int cli_count(const cli *c, const char *flag); /* number of these values */
/* True if the word is in a list whose words are separated by any of these characters. */
bool cli_lists(const char *list, const char *separators, const char *word);
/* --format json or jsonl; --format jsonl. */
bool cli_json(const cli *c);
bool cli_json_lines(const cli *c);
bool cli_quiet(const cli *c);
/* Reads an integer flag in [least, most]; `fallback` if it is absent. USAGE: it is something
 * else. */
gqac_status cli_number(cli *c, const char *flag, long long least, long long most,
                       long long fallback, long long *out);
/* Reads a finite decimal number from a flag; `fallback` if it is absent. USAGE: it is something
 * else. */
gqac_status cli_real(cli *c, const char *flag, double fallback, double *out);
/* "3,7,1" as numbers in [least, most]; the array is malloc'd. */
gqac_status cli_numbers(cli *c, const char *flag, const char *text, long long least, long long most,
                        int64_t **out, int *n);
/* One number, which ends the value `text` of a flag and begins at `part`. */
gqac_status cli_number_in(cli *c, const char *flag, const char *text, const char *part,
                          long long least, long long most, int64_t *out);

/* Fails with USAGE. */
gqac_status cli_usage(cli *c, const char *fmt, ...) GQAC_PRINTF(2, 3);
/* Fails with a status. */
gqac_status cli_fail(cli *c, gqac_status status, const char *fmt, ...) GQAC_PRINTF(3, 4);
/* Ends the process with a message when a mapped file loses a page that is read. */
void cli_watch_files(void);
/* Set the texts where, rule and hint of the failure; return its status. */
gqac_status cli_where(cli *c, const char *fmt, ...) GQAC_PRINTF(2, 3);
gqac_status cli_rule(cli *c, const char *fmt, ...) GQAC_PRINTF(2, 3);
gqac_status cli_hint(cli *c, const char *fmt, ...) GQAC_PRINTF(2, 3);
/* Prints the diag on stderr; returns its exit code (0 for OK). */
int cli_finish(cli *c, gqac_status status);
/* A line on stderr for a refusal and what was done instead, unless it is NULL or -q is given. */
void cli_warn_refusal(const cli *c, const char *instead, const gqac_diag *refusal);
/* A line on stderr, unless -q is given, for the settings that gqac does not have (NULL: none), and
 * one for an id that the rules forbid and the model does not have; vocabulary 0: not known. */
void cli_warn_rules(const cli *c, const char *not_obeyed, const gqac_token_rules *rules,
                    int64_t vocabulary);

/* A line on stderr, unless -q is given, for settings that are not obeyed, and for each part of the
 * config or tokenizer that does not fit the model: ids of eos_token_id and of the tokenizer that it
 * does not have, and a context_length of more tokens than a sequence can have. */
void cli_warn_config(const cli *c, const gqac_program *program, const gqac_text *text);

/* Options from the common flags. USAGE: a value is unknown. */
gqac_status cli_options(cli *c, gqac_options *options);
/* Reads --limit into c->limits, which the result points to. */
gqac_status cli_limits(cli *c, const gqac_limits **limits);
/* Opens the text of operand 0 within the limits of --limit. */
gqac_status cli_open_text(cli *c, unsigned parts, gqac_text **text);
/* Finds the path of the model file that operand 0 means; in a folder, that of its decoder. The
 * options get the names of inputs and outputs in its genai_config.json, which c->config owns;
 * `options` NULL: the names of the file are kept. */
gqac_status cli_model(cli *c, gqac_options *options, char *path, size_t size);
gqac_status cli_threads(cli *c, int *threads);
/* Opens the model of operand 0 by the common flags. `cacheless`: one that has no cache is opened
 * stateless, for gqac_forward_stateless. */
gqac_status cli_open(cli *c, bool cacheless, gqac_program **program);
/* Opens the model of operand 0 for stateless runs, with the names of its file, and a context. */
gqac_status cli_open_stateless(cli *c, gqac_program **program, gqac_context **context);
/* gqac_program_max_tokens of the model of operand 0, found before its weights are packed.
 * INT64_MAX too when it cannot be opened; loading it says why. */
int64_t cli_most_tokens(cli *c);
/* OUT_OF_RANGE: --context is above the maximum number of tokens. */
gqac_status cli_check_context(cli *c, int64_t context, int64_t most);
bool cli_kv_off(const cli *c);
/* A monitor for gqac_options: Ctrl-C ends the opening or compiling of a model, and stderr shows its
 * progress. */
const gqac_monitor *cli_watch_model(cli *c);
/* A monitor of steps: Ctrl-C ends them, and stderr shows the progress of long ones as `what`; NULL:
 * nothing is shown. */
const gqac_monitor *cli_watch_steps(cli *c, const char *what);
/* A context with that monitor. */
gqac_status cli_context(cli *c, const gqac_program *program, int threads, const char *what,
                        gqac_context **context);
/* Removes the progress line; to be called before anything else is written to stderr. */
void cli_clear_progress(cli *c);

/* The bytes of a file ("-": standard input), a NUL after them; malloc'd. */
gqac_status cli_read_file(cli *c, const char *path, char **text, size_t *length);
/* The same of a text. INVALID_INPUT: it has a NUL. */
gqac_status cli_read_text(cli *c, const char *path, char **text);
/* The value of --NAME-file, unless the command line has --NAME; NULL: none. USAGE: it has both. */
gqac_status cli_text_file(cli *c, const char *name, const char **path);
/* A text flag that may also come as `--NAME -` from standard input or as `--NAME-file FILE`: from
 * here on cli_value(c, name) is the text of the file. To be called once. */
gqac_status cli_take_text(cli *c, const char *name);
/* Token ids of a file (whitespace-separated); malloc'd. */
gqac_status cli_read_ids(cli *c, const char *path, int64_t **ids, int64_t *n);
/* OUT_OF_RANGE for negative ids, which would count from the end of a table; the model itself
 * refuses ids after the end. */
gqac_status cli_check_ids(cli *c, const char *name, const gqac_tensor *ids);
/* OUT_OF_RANGE: --ids FILE has an id that the model does not have. Nothing is checked without the
 * flag. */
gqac_status cli_check_vocabulary(cli *c, const gqac_program *program, const int64_t *ids,
                                 int64_t n);
/* OUT_OF_RANGE: the program has positions for fewer than n tokens. */
gqac_status cli_check_length(cli *c, const gqac_program *program, int64_t n);
/* A number; null when it is not finite, because JSON has no such numbers. */
json_t *cli_real_json(double value);
/* A text of a model, a file or a server, or the name of a file. JSON is UTF-8, and jansson takes
 * nothing else: bytes that are not are written as cli_shown does. */
json_t *cli_text_json(const char *text);
/* The build of this program: commit (null: not built in a repository) and compiler. */
json_t *cli_build_json(void);
/* The machine: name, processor (null: unknown) and number of processors. */
json_t *cli_host_json(void);
/* Prints and frees a JSON value. */
void cli_print_json(json_t *value);
/* The same on one line, flushed. NO_MEMORY when the value is NULL. */
gqac_status cli_print_json_line(cli *c, json_t *value);
double cli_seconds(void); /* monotonic clock */
/* A text that may come from a file, made safe for a terminal: printf("%s", cli_shown(name).s). A
 * text that is too long ends in "...". */
typedef struct cli_text {
    char s[1024];
} cli_text;
cli_text cli_shown(const char *text);
/* "[1,2,8,64]" */
cli_text cli_bracketed(int n, const int64_t *numbers);
/* USAGE: writing to `path`, for a flag, would destroy the model or a file that another flag reads.
 * `program` not NULL: its external data are protected too. */
gqac_status cli_check_output(cli *c, const char *flag, const gqac_program *program,
                             const char *path);
/* The form of a file of a model that the suffix of its name stands for: "gqac", "onnx" or "text";
 * NULL: none. */
const char *cli_form_of(const char *path);
/* Before the work: IO when a file cannot be written to `path`. */
gqac_status cli_check_writable(cli *c, const char *path);
/* Makes a folder for outputs, unless it exists. */
gqac_status cli_make_folder(cli *c, const char *folder, unsigned mode);
/* "DIR/<name, '/' as '_'>.npy" */
void cli_tensor_path(char *path, size_t size, const char *dir, const char *name);

#endif
