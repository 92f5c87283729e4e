/* Text of tensor data: at most 16 elements in decimal if that is exact, else the bytes in hex, or
 * their digest.
 *
 * Every bit is kept: what decimal text cannot distinguish (a NaN other than the default one, a bool
 * that is neither 0 nor 1, a padding nibble that is not 0, a double that is not a float) is printed
 * in hex. */
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/file.h"
#include "ir/release.h"
#include "numerics/convert.h"

enum { F32_NAN = 0x7fc00000, F16_NAN = 0x7e00, BF16_NAN = 0x7fc0 };
static const uint64_t f64_nan = UINT64_C(0x7ff8000000000000);

/* Any element, as an integer or as a float. */
typedef struct element {
    bool is_float;
    bool negative; /* of an integer */
    uint64_t size; /* its magnitude */
    float f;
} element;

/* The half with exactly this value. */
static bool half_from_float(float f, uint16_t *half) {
    *half = gqn_f32_to_f16(f);
    return gqn_f16_to_f32(*half) == f;
}

/* ---- printing ------------------------------------------------------------ */

static void get_int(const unsigned char *data, int bits, bool is_signed, element *e) {
    uint64_t raw = 0;
    memcpy(&raw, data, (size_t)bits / 8);
    uint64_t top = UINT64_C(1) << (bits - 1);
    e->negative = is_signed && (raw & top);
    /* Sign-extend, then take the magnitude. */
    e->size = e->negative ? 0 - ((raw ^ top) - top) : raw;
}

static bool get_float(const gqac_tensor *tensor, size_t i, float *f) {
    const unsigned char *data = tensor->data;
    uint16_t half;
    double d;
    switch (tensor->dtype) {
    case GQAC_F32:
        memcpy(f, data + 4 * i, 4);
        return *f == *f || gqn_as_u32(*f) == F32_NAN;
    case GQAC_F16:
        memcpy(&half, data + 2 * i, 2);
        *f = gqn_f16_to_f32(half);
        return *f == *f || half == F16_NAN;
    case GQAC_BF16:
        memcpy(&half, data + 2 * i, 2);
        *f = gqn_as_f32((uint32_t)half << 16);
        return *f == *f || half == BF16_NAN;
    default:
        memcpy(&d, data + 8 * i, 8);
        *f = (float)d;
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*): the same bits are wanted */
        return d == d ? (double)*f == d : memcmp(&d, &f64_nan, sizeof d) == 0;
    }
}

/* Reads element i; false: its decimal text would read back as other bits. */
static bool get_element(const gqac_tensor *tensor, size_t i, element *e) {
    const unsigned char *data = tensor->data;
    int bits = gqac_dtype_bits(tensor->dtype);
    memset(e, 0, sizeof *e);
    if (gqac_dtype_is_float(tensor->dtype)) {
        e->is_float = true;
        return get_float(tensor, i, &e->f);
    }
    if (bits == 4) {
        unsigned nibble = (unsigned)data[i / 2] >> (i % 2 * 4) & 15;
        e->negative = tensor->dtype == GQAC_I4 && nibble >= 8;
        e->size = e->negative ? 16 - nibble : nibble;
        bool last = i % 2 == 0 && (int64_t)i + 1 == gqac_tensor_count(tensor);
        return !last || data[i / 2] >> 4 == 0;
    }
    get_int(data + i * (size_t)bits / 8, bits, gqac_dtype_is_signed(tensor->dtype), e);
    return tensor->dtype != GQAC_BOOL || e->size <= 1;
}

static bool listable(const gqac_tensor *tensor) {
    int64_t n = gqac_tensor_count(tensor);
    element e;
    if (n > IR_MAX_LISTED)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!get_element(tensor, (size_t)i, &e))
            return false;
    return true;
}

static void print_list(gqac_str *out, const gqac_tensor *tensor) {
    int64_t n = gqac_tensor_count(tensor);
    gqac_str_append(out, tensor->rank ? "[" : "");
    for (int64_t i = 0; i < n; i++) {
        char number[32];
        element e;
        (void)get_element(tensor, (size_t)i, &e);
        gqac_str_append(out, i ? ", " : "");
        if (e.is_float) {
            gqac_format_float(number, e.f);
            gqac_str_append(out, number);
        } else {
            gqac_str_printf(out, "%s%llu", e.negative ? "-" : "", (unsigned long long)e.size);
        }
    }
    gqac_str_append(out, tensor->rank ? "]" : "");
}

static void print_hex(gqac_str *out, const unsigned char *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        char pair[2] = {digits[data[i] >> 4], digits[data[i] & 15]};
        gqac_str_append_n(out, pair, 2);
    }
}

bool ir_prints_digest(const ir_value *constant) {
    const gqac_tensor *t = constant->constant;
    return gqac_tensor_count(t) > IR_MAX_LISTED || (!t->data && gqac_tensor_bytes(t) > 0);
}

/* Pages of a mapped file are released after each piece, so that a table is never in memory as a
 * whole. */
static void hash_all(gqac_sha256 *state, const ir_module *module, const unsigned char *data,
                     size_t bytes) {
    enum { PIECE = 4 << 20 };
    while (bytes > 0) {
        const size_t n = bytes < PIECE ? bytes : PIECE;
        gqac_sha256_update(state, data, n);
        ir_data_done(module, data, n);
        data += n;
        bytes -= n;
    }
}

/* Prints a digest of the data, or of a sample of them. */
static void print_digest(gqac_str *out, const ir_module *module, const unsigned char *data,
                         size_t bytes, bool sample) {
    enum { PIECE = 64, PIECES = 16 };
    unsigned char sha[32];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    if (!sample || bytes <= PIECE * PIECES)
        hash_all(&state, module, data, bytes);
    else
        for (size_t i = 0; i < PIECES; i++)
            gqac_sha256_update(&state, data + (bytes - PIECE) / (PIECES - 1) * i, PIECE);
    gqac_sha256_final(&state, sha);
    gqac_str_append(out, sample ? "sample " : "sha256 ");
    print_hex(out, sha, IR_DIGEST_DIGITS / 2);
}

static void print_hash(gqac_str *out, const unsigned char *data, size_t bytes) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(data, bytes));
    gqac_str_append(out, "xxh3 ");
    print_hex(out, hash.digest, sizeof hash.digest);
}

void ir_print_tensor_data(gqac_str *out, const ir_module *module, const gqac_tensor *tensor,
                          const char *digest, ir_print_mode mode) {
    bool absent = !tensor->data && gqac_tensor_bytes(tensor) > 0;
    size_t bytes = gqac_tensor_bytes(tensor);
    if (absent) {
        gqac_str_printf(out, "sha256 %s", digest ? digest : "0000000000000000");
    } else if (listable(tensor)) {
        print_list(out, tensor);
    } else if (mode == IR_PRINT_FULL || gqac_tensor_count(tensor) <= IR_MAX_LISTED) {
        gqac_str_append(out, "hex \"");
        print_hex(out, tensor->data, bytes);
        gqac_str_append(out, "\"");
    } else if (mode == IR_PRINT_HASH) {
        print_hash(out, tensor->data, bytes);
    } else {
        print_digest(out, module, tensor->data, bytes, mode == IR_PRINT_SAMPLE);
    }
}

/* ---- parsing ------------------------------------------------------------- */

static gqac_status parse_integer(ir_lexer *lexer, gqac_dtype dtype, uint64_t *raw) {
    int bits = dtype == GQAC_BOOL ? 1 : gqac_dtype_bits(dtype);
    int64_t value;
    if (ir_lex_peek(lexer) == '-' || bits < 64 || gqac_dtype_is_signed(dtype)) {
        bool is_signed = gqac_dtype_is_signed(dtype);
        int64_t most = is_signed    ? (int64_t)((UINT64_C(1) << (bits - 1)) - 1)
                       : bits == 64 ? INT64_MAX
                                    : (int64_t)((UINT64_C(1) << bits) - 1);
        GQAC_TRY(ir_lex_int(lexer, is_signed ? -most - 1 : 0, most, &value));
        *raw = (uint64_t)value;
        return GQAC_OK;
    }
    const char *start = lexer->at;
    uint64_t number = 0;
    for (; *lexer->at >= '0' && *lexer->at <= '9'; lexer->at++) {
        uint64_t digit = (uint64_t)(*lexer->at - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return ir_lex_fail(lexer, start, "the integer is out of range for 64 bits");
        number = number * 10 + digit;
    }
    if (lexer->at == start || ir_ident_char(*lexer->at))
        return ir_lex_fail(lexer, start, "expected an integer");
    *raw = number;
    return GQAC_OK;
}

static bool read_double(const char *text, double *value) {
    char *end;
    *value = gqac_strtod(text, &end);
    return end != text && !*end && *value - *value == 0;
}

/* Parses a double in decimal; "nan" and "inf" are written as for floats. */
static gqac_status parse_double(ir_lexer *lexer, uint64_t *raw) {
    gqac_str word = {0};
    double value = 0;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    gqac_status status = ir_lex_number(lexer, &word);
    if (status == GQAC_OK && (strchr(word.text, 'n') || strchr(word.text, 'x'))) {
        float f = 0;
        lexer->at = start;
        status = ir_lex_float(lexer, &f);
        value = f;
    } else if (status == GQAC_OK && !read_double(word.text, &value)) {
        status = ir_lex_fail(lexer, start, "expected a finite 64-bit float");
    }
    gqac_str_free(&word);
    memcpy(raw, &value, sizeof value);
    if (value != value)
        *raw = f64_nan;
    return status;
}

static gqac_status parse_float(ir_lexer *lexer, gqac_dtype dtype, uint64_t *raw) {
    if (dtype == GQAC_F64)
        return parse_double(lexer, raw);
    float f = 0;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    GQAC_TRY(ir_lex_float(lexer, &f));
    uint32_t bits = f != f ? F32_NAN : gqn_as_u32(f);
    uint16_t half = F16_NAN;
    *raw = bits;
    if (dtype == GQAC_BF16 && bits & 0xffff)
        return ir_lex_fail(lexer, start, "the number cannot be represented exactly in bf16");
    if (dtype == GQAC_BF16)
        *raw = bits >> 16;
    if (dtype == GQAC_F16 && f == f && !half_from_float(f, &half))
        return ir_lex_fail(lexer, start, "the number cannot be represented exactly in f16");
    if (dtype == GQAC_F16)
        *raw = half;
    return GQAC_OK;
}

static gqac_status parse_element(ir_lexer *lexer, const gqac_tensor *tensor, size_t i) {
    unsigned char *data = tensor->data;
    int bits = gqac_dtype_bits(tensor->dtype);
    uint64_t raw = 0;
    if (gqac_dtype_is_float(tensor->dtype))
        GQAC_TRY(parse_float(lexer, tensor->dtype, &raw));
    else
        GQAC_TRY(parse_integer(lexer, tensor->dtype, &raw));
    if (bits == 4)
        data[i / 2] = (unsigned char)(data[i / 2] | (raw & 15) << (i % 2 * 4));
    else
        memcpy(data + i * (size_t)bits / 8, &raw, (size_t)bits / 8);
    return GQAC_OK;
}

static gqac_status parse_list(ir_lexer *lexer, const gqac_tensor *tensor) {
    int64_t n = gqac_tensor_count(tensor);
    if (tensor->rank == 0)
        return parse_element(lexer, tensor, 0);
    GQAC_TRY(ir_lex_expect(lexer, "["));
    for (int64_t i = 0; i < n; i++) {
        if (i)
            GQAC_TRY(ir_lex_expect(lexer, ","));
        GQAC_TRY(parse_element(lexer, tensor, (size_t)i));
    }
    return ir_lex_expect(lexer, "]");
}

static int nibble(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses hex digits into the tensor's data, which are allocated; the text is long enough. */
static gqac_status parse_hex(ir_lexer *lexer, const gqac_tensor *tensor, size_t bytes) {
    unsigned char *data = tensor->data;
    for (size_t i = 0; i < bytes; i++, lexer->at += 2) {
        int high = nibble(lexer->at[0]), low = high < 0 ? -1 : nibble(lexer->at[1]);
        if (low < 0)
            return ir_lex_fail(lexer, lexer->at,
                               "expected %zu more bytes of data, as hex digits in lower case",
                               bytes - i);
        data[i] = (unsigned char)(high << 4 | low);
    }
    return ir_lex_expect(lexer, "\"");
}

static gqac_status parse_digest(ir_lexer *lexer, gqac_arena *arena, const char **digest) {
    ir_lex_skip(lexer);
    size_t n = strspn(lexer->at, "0123456789abcdef");
    if (n != IR_DIGEST_DIGITS || ir_ident_char(lexer->at[n]))
        return ir_lex_fail(lexer, lexer->at, "expected a digest of %d hex digits",
                           IR_DIGEST_DIGITS);
    *digest = gqac_arena_strndup(arena, lexer->at, n);
    lexer->at += n;
    return *digest ? GQAC_OK : gqac_diag_oom(lexer->diag, "a digest");
}

gqac_status ir_parse_tensor_data(ir_lexer *lexer, gqac_arena *arena, gqac_tensor *tensor,
                                 const char **digest) {
    size_t bytes = gqac_tensor_bytes(tensor);
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    if (digest && bytes && ir_lex_take(lexer, "sha256"))
        return parse_digest(lexer, arena, digest);
    bool hex = ir_lex_take(lexer, "hex");
    if (hex)
        GQAC_TRY(ir_lex_expect(lexer, "\""));
    /* memory is allocated only if the text is long enough: two digits per byte, or a digit and a
     * comma per element, which takes at most eight bytes */
    size_t left = strnlen(lexer->at, hex ? 2 * bytes : (size_t)gqac_tensor_count(tensor));
    if (hex ? left / 2 < bytes : left < (size_t)gqac_tensor_count(tensor))
        return ir_lex_fail(lexer, start, "the text ends before the end of the tensor's data");
    tensor->data = gqac_arena_calloc(arena, bytes, 1);
    if (!tensor->data)
        return gqac_diag_oom(lexer->diag, "a tensor of the text");
    return hex ? parse_hex(lexer, tensor, bytes) : parse_list(lexer, tensor);
}
