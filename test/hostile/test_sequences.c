/* Models with a cache or a state that are nearly valid, as sequences: states of every element type,
 * omitted results. Compiling and a few steps must succeed, or end in a refusal with a reason.
 *
 * Each model is tried in a process of its own, so that a signal is a failure that names it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gqac/gqac.h>

#include "../unit.h"

enum { TEXT = 1 << 13, SECONDS = 10, FINE = 0, REFUSED = 1, WRONG = 2 };

#define HEAD                                                                                       \
    "  const %emb: f32[3,8] = [0.5,-1,1,0.25,2,-0.5,1,0.75,1,1,-1,0.5,0.25,2,1,-0.25,1,0.5,1,-2,"  \
    "0.5,1,1,0.125]\n"                                                                             \
    "  const %axis: i64[1] = [1]\n"                                                                \
    "  const %one: i64[] = 1\n"                                                                    \
    "  const %w32: f32[8,1,4] = [1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,"   \
    "4]\n"                                                                                         \
    "  %x32 = Gather %emb, %input_ids : ?\n"                                                       \
    "  %x = Cast %x32 {to=$X} : ?\n"

/* $S is the element type of the state, $X that of the values that pass through the layer, $Y the
 * first output of the layer, $Z its type; $R the logits. */
static const struct {
    const char *name, *text;
} models[] = {
    {"Attention", "graph @m(%input_ids: i64[B,S], %past_key_values.0.key: $S[B,1,P,8], "
                  "%past_key_values.0.value: $S[B,1,P,8]) {\n" HEAD
                  "  $Y, %k, %v = Attention %x, %x, %x, _, %past_key_values.0.key, "
                  "%past_key_values.0.value {is_causal=1, q_num_heads=1, kv_num_heads=1} "
                  ": $Z, ?, ?\n"
                  "  return $R as \"logits\", %k as \"present.0.key\", %v as \"present.0.value\"\n"
                  "}\n"},
    {"GroupQueryAttention",
     "graph @m(%input_ids: i64[B,S], %attention_mask: i64[B,T], %past_key_values.0.key: "
     "$S[B,1,P,8], %past_key_values.0.value: $S[B,1,P,8]) {\n" HEAD
     "  %sum = ReduceSum %attention_mask, %axis {keepdims=0} : ?\n"
     "  %last = Sub %sum, %one : ?\n"
     "  %len = Cast %last {to=i32} : ?\n"
     "  %shape = Shape %attention_mask : ?\n"
     "  %t64 = Gather %shape, %one : ?\n"
     "  %total = Cast %t64 {to=i32} : ?\n"
     "  $Y, %k, %v = com.microsoft.GroupQueryAttention %x, %x, %x, %past_key_values.0.key, "
     "%past_key_values.0.value, %len, %total {num_heads=1, kv_num_heads=1} : $Z, ?, ?\n"
     "  return $R as \"logits\", %k as \"present.0.key\", %v as \"present.0.value\"\n}\n"},
    {"LinearAttention",
     "graph @m(%input_ids: i64[B,S], %past_state.0: $S[B,2,4,4]) {\n" HEAD
     "  $Y, %s = LinearAttention %x, %x, %x, %past_state.0 {q_num_heads=2, kv_num_heads=2, "
     "update_rule=\"linear\"} : $Z, ?\n"
     "  return $R as \"logits\", %s as \"present_state.0\"\n}\n"},
    {"CausalConvWithState", "graph @m(%input_ids: i64[B,S], %past_conv.0: $S[B,8,3]) {\n" HEAD
                            "  %w = Cast %w32 {to=$X} : ?\n"
                            "  %c = Transpose %x {perm=[0,2,1]} : ?\n"
                            "  $Y, %s = CausalConvWithState %c, %w, _, %past_conv.0 : $Z, ?\n"
                            "  %z = Transpose $R {perm=[0,2,1]} : ?\n"
                            "  return %z as \"logits\", %s as \"present_conv.0\"\n}\n"},
    {"kv_append",
     "graph @m(%input_ids: i64[B,S], %gqac.past_len: i32[B], %gqac.new_len: i32[B]) {\n" HEAD
     "  %h = Unsqueeze %x, %axis : ?\n"
     "  %t = kv_state {slot=0, past=\"p\", present=\"q\", heads=1, head_size=8, dtype=$S} : token\n"
     "  %t1, $Y = kv_append %t, %h, %gqac.past_len, %gqac.new_len {slot=0} : ?, $Z\n"
     "  return %x as \"logits\", $R as \"rows\", %t1 as \"state.0\"\n}\n"},
    {"recurrent_attention",
     "graph @m(%input_ids: i64[B,S], %gqac.past_len: i32[B], %gqac.new_len: i32[B]) {\n" HEAD
     "  %t = kv_state {slot=0, past=\"p\", present=\"q\", heads=2, head_size=4, rows=4, dtype=$S} "
     ": token\n"
     "  $Y, %s = recurrent_attention %x, %x, %x, %t {q_num_heads=2, kv_num_heads=2, "
     "update_rule=\"linear\"} : $Z, ?\n"
     "  return $R as \"logits\", %s as \"state.0\"\n}\n"},
    {"seqlens_to_past without ids",
     "graph @m(%input_ids: i64[B,S], %len: i32[B], %total: i32[], "
     "%past_key_values.0.key: $S[B,1,P,8]) {\n" HEAD "  %h = Unsqueeze %x, %axis : ?\n"
     "  %p, %n, %pos = seqlens_to_past %len, %total, %x, %past_key_values.0.key "
     "{convention=\"total-1\"} : ?, ?, ?\n"
     "  $Y = concat_past_present %past_key_values.0.key, %h, %p, %n, %total : $Z\n"
     "  return %x as \"logits\", %pos, $R as \"present.0.key\"\n}\n"},
    {"seqlens_to_past",
     "graph @m(%input_ids: i64[B,S], %len: i32[B], %total: i32[], %ids: i64[B,S], "
     "%past_key_values.0.key: $S[B,1,P,8]) {\n" HEAD "  %h = Unsqueeze %x, %axis : ?\n"
     "  %p, %n, %pos = seqlens_to_past %len, %total, %x, %past_key_values.0.key, %ids "
     "{convention=\"total-1\"} : ?, ?, ?\n"
     "  $Y = concat_past_present %past_key_values.0.key, %h, %p, %n, %total : $Z\n"
     "  return %x as \"logits\", %pos, $R as \"present.0.key\"\n}\n"},
};
enum { MODELS = sizeof models / sizeof *models };

/* Writes the text with each `$` letter replaced. */
static void fill(char *to, const char *from, const char *state, const char *type, bool left_out) {
    char *const end = to + TEXT - 16;
    for (; *from && to < end; from++) {
        const char *word = NULL;
        if (*from == '$')
            word = from[1] == 'S'   ? state
                   : from[1] == 'X' ? type
                   : from[1] == 'Y' ? (left_out ? "_" : "%y")
                   : from[1] == 'Z' ? (left_out ? "_" : "?")
                                    : (left_out ? "%x" : "%y");
        if (word)
            to += sprintf(to, "%s", word), from++;
        else
            *to++ = *from;
    }
    *to = '\0';
}

/* A prompt, then one token. */
static gqac_status take_steps(const gqac_program *program, gqac_diag *diag) {
    static const int64_t ids[] = {0, 2, 1, 1};
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = {.size = sizeof options};
    gqac_status status = gqac_context_create(program, 1, &context, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_create(program, &options, &sequence, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, sequence, ids, 3, GQAC_LOGITS_ALL, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, sequence, ids + 3, 1, GQAC_LOGITS_ALL, diag);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    return status;
}

static int try_model(const char *text, const char *target) {
    gqac_diag diag = {0};
    gqac_program *program = NULL;
    gqac_options options;
    gqac_model_bytes bytes;
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, text, strlen(text));
    options.bytes = &bytes;
    options.target = target;
    gqac_status status = gqac_program_open("model.gq", &options, &program, &diag);
    if (status == GQAC_OK)
        status = take_steps(program, &diag);
    gqac_program_free(program);
    if (getenv("ROWS_SHOW"))
        printf("%s %s %s: %s\n%s\n", target, gqac_status_name(status), diag.where, diag.what, text);
    if (status == GQAC_INTERNAL || (status != GQAC_OK && !diag.what[0])) {
        printf("  %s %s: %s\n", gqac_status_name(status), diag.where, diag.what);
        return WRONG;
    }
    return status == GQAC_OK ? FINE : REFUSED;
}

/* Returns WRONG also if a signal ends the process. */
static int in_process(const char *text, const char *target) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {SECONDS, SECONDS};
        setrlimit(RLIMIT_CPU, &limit);
        const int result = try_model(text, target);
        fflush(stdout);
        _exit(result);
    }
    CU_ASSERT_FATAL(child > 0);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        printf("  %s\n", strsignal(WTERMSIG(status)));
    return WIFEXITED(status) ? WEXITSTATUS(status) : WRONG;
}

static int try_both(const char *text) {
    const int ref = in_process(text, "ref"), cpu = in_process(text, "cpu");
    if (ref == WRONG || cpu == WRONG)
        printf("%s\n", text);
    CU_ASSERT_NOT_EQUAL(ref, WRONG);
    CU_ASSERT_NOT_EQUAL(cpu, WRONG);
    CU_ASSERT_EQUAL(ref, cpu);
    return ref;
}

static void states_of_every_type(void) {
    char text[TEXT];
    for (size_t i = 0; i < MODELS; i++) {
        int taken = 0;
        for (int k = GQAC_NONE + 1; k < GQAC_DTYPE_COUNT; k++) {
            const char *state = gqac_dtype_name((gqac_dtype)k);
            fill(text, models[i].text, state, "f32", false);
            taken += try_both(text) == FINE;
            fill(text, models[i].text, state, state, false);
            taken += try_both(text) == FINE;
        }
        if (!strstr(models[i].name, "seqlens_to_past"))
            CU_ASSERT_TRUE(taken >= 1);
    }
}

static void first_result_left_out(void) {
    char text[TEXT];
    for (size_t i = 0; i < MODELS; i++) {
        fill(text, models[i].text, "f32", "f32", true);
        (void)try_both(text);
    }
}

/* 64 sums, each of a value with itself, of a value that depends on constants but cannot be folded:
 * there are more paths to it than could ever be followed. */
static void many_ways(void) {
    static char text[1 << 14];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "graph @m(%%input_ids: i64[B,S], %%past_state.0: f32[B,2,4,4]) {\n"
                                 "  const %%emb: f32[1,8] = [1,2,3,4,5,6,7,8]\n"
                                 "  const %%bad: i64[] = 9\n"
                                 "  %%x = Gather %%emb, %%input_ids : ?\n"
                                 "  %%y, %%s = LinearAttention %%x, %%x, %%x, %%past_state.0 "
                                 "{q_num_heads=2, kv_num_heads=2, update_rule=\"linear\"} : ?, ?\n"
                                 "  %%s0 = Gather %%emb, %%bad : ?\n");
    for (int level = 1; level <= 12; level++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "  %%s%d = Sum", level);
        for (int i = 0; i < 64; i++)
            at +=
                (size_t)snprintf(text + at, sizeof text - at, "%s %%s%d", i ? "," : "", level - 1);
        at += (size_t)snprintf(text + at, sizeof text - at, " : ?\n");
    }
    snprintf(text + at, sizeof text - at,
             "  %%z = Add %%y, %%s12 : ?\n"
             "  return %%z as \"logits\", %%s as \"present_state.0\"\n}\n");
    CU_ASSERT_EQUAL(try_both(text), REFUSED); /* the step refuses it: there is no row 9 */
}

/* Products of large constants from a small text: the work of folding is limited. */
static void folding_ends(void) {
    char text[TEXT];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "graph @m(%%input_ids: i64[B,S]) {\n"
                                 "  const %%s: i64[2] = [128,128]\n"
                                 "  const %%wide: i64[2] = [1,3]\n"
                                 "  const %%high: i64[2] = [3,1]\n"
                                 "  %%t0 = ConstantOfShape %%s {value=f32[1] [0.001]} : ?\n");
    for (int i = 0; i < 6; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "  %%t%d = Tile %%t%d, %%%s : ?\n",
                               i + 1, i, i % 2 ? "high" : "wide");
    for (int i = 6; i < 60; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "  %%t%d = MatMul %%t%d, %%t%d : ?\n",
                               i + 1, i, i);
    snprintf(text + at, sizeof text - at, "  return %%t60 as \"logits\"\n}\n");
    CU_ASSERT_EQUAL(try_both(text), REFUSED); /* there is no cache */
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"states of every type", states_of_every_type},
                                      {"first result left out", first_result_left_out},
                                      {"many ways to one node", many_ways},
                                      {"folding ends", folding_ends}};
    return unit_run("hostile: sequences", cases, sizeof cases / sizeof *cases, argc, argv);
}
