/* linear_integer for one level: y [rows,16] = (a - its zero points) (w - theirs), by words of four
 * k. If the level has an instruction that sums products of bytes, a word of a is four unsigned
 * bytes (i8 codes plus 128):
 *   y = sum of a * w - (zero + 128) * sum of w - zero of the column * sum of (a - zero)
 * otherwise it is 16-bit differences a - zero, first for k 0 and 2 of the word, then for k 1 and 3,
 * which are multiplied by the same bytes of w:
 *   y = sum of (a - zero) * w - zero of the column * sum of (a - zero) */
#include "targets/cpu/integer.h"
#include "targets/cpu/level/level.h"

enum { HALVES = V16I_NIBBLES <= 8, FORM = HALVES ? 8 : 4 }; /* bytes of a word of a */
#if defined(__AVX512F__)
enum { TILE_ROWS = 4, TILE_PANELS = 4 };
#else
enum { TILE_ROWS = 6, TILE_PANELS = 1 };
#endif

static size_t row_bytes(int64_t words) {
    return (size_t)words * FORM;
}

/* The number that, when added, makes codes unsigned. */
static int32_t shift_of(const integer_product *p) {
    return p->is_signed ? 128 : 0;
}

/* Prepares a row of a. Elements after the last k are multiplied by zeros of w. */
static void prepare(const cpu_integer_job *j, int64_t row) {
    const integer_product *p = &j->p;
    const uint8_t *a = p->a + row * p->k;
    const int32_t zero = integer_zero(p, row), shift = shift_of(p);
    unsigned char *to = j->form + (size_t)row * row_bytes(p->words);
    int32_t sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += integer_code(p, a[k]) - zero;
    j->sums[row] = sum;
    for (int64_t k = 0; k < p->words * INTEGER_WORD; k++) {
        const int32_t code = k < p->k ? integer_code(p, a[k]) : zero;
        const int64_t word = k / INTEGER_WORD * FORM;
        if (!HALVES) {
            to[k] = (unsigned char)(code + shift);
            continue;
        }
        const int16_t half = (int16_t)(code - zero);
        memcpy(to + word + k % 2 * 4 + k % INTEGER_WORD / 2 * 2, &half, sizeof half);
    }
}

VEC_FN v16i spread(const unsigned char *word) {
    int32_t x;
    memcpy(&x, word, sizeof x);
    return v16i_set1(x);
}

/* Subtracts the terms of the zero points. Not a part of tile(), where the compiler would keep the
 * sums on the stack. */
static __attribute__((noinline)) void finish(const cpu_integer_job *j, int64_t panel, int64_t row,
                                             uint32_t *lane) {
    const integer_product *p = &j->p;
    const int32_t *zeros = p->terms + panel * INTEGER_TERMS, *sums = zeros + INTEGER_COLUMNS;
    const uint32_t less = HALVES ? 0u : (uint32_t)(integer_zero(p, row) + shift_of(p));
    const int64_t first = panel * INTEGER_COLUMNS, left = p->n - first;
    const int64_t columns = left < INTEGER_COLUMNS ? left : INTEGER_COLUMNS;
    for (int i = 0; i < INTEGER_COLUMNS; i++)
        lane[i] -= less * (uint32_t)sums[i] + (uint32_t)zeros[i] * (uint32_t)j->sums[row];
    memcpy(p->y + row * p->n + first, lane, (size_t)columns * sizeof *lane);
}

/* sum += the products of one word. A level without products of bytes finishes the even bytes before
 * it widens the odd ones, to need fewer registers. */
VEC_FN void word(v16i sum[TILE_ROWS][TILE_PANELS], const unsigned char *a, size_t lda,
                 const int8_t *w, int64_t ldw, const int R, const int P) {
    for (int half = 0; half < (HALVES ? 2 : 1); half++) {
        v16i b[TILE_PANELS];
        UNROLL(4)
        for (int c = 0; c < P; c++) {
            b[c] = v16i_load(w + c * ldw);
            if (HALVES)
                b[c] = half ? v16i_odd_bytes(b[c]) : v16i_even_bytes(b[c]);
        }
        UNROLL(6)
        for (int r = 0; r < R; r++) {
            const v16i x = spread(a + (size_t)r * lda + 4 * half);
            UNROLL(4)
            for (int c = 0; c < P; c++)
                sum[r][c] = HALVES ? v16i_dot_pairs_add(sum[r][c], b[c], x)
                                   : v16i_dot_bytes(sum[r][c], x, b[c]);
        }
    }
}

/* Computes R rows of P panels. */
VEC_FN void tile(const cpu_integer_job *j, int64_t panel, int64_t row, const int R, const int P) {
    const int64_t words = j->p.words, ldw = words * INTEGER_LINE;
    const int8_t *w = j->p.w + panel * ldw;
    const size_t lda = row_bytes(words);
    const unsigned char *a = j->form + (size_t)row * lda;
    v16i sum[TILE_ROWS][TILE_PANELS];
    uint32_t lanes[TILE_ROWS][TILE_PANELS][INTEGER_COLUMNS];
    UNROLL(6)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < P; c++)
        sum[r][c] = v16i_zero();
    for (int64_t k = 0; k < words; k++, w += INTEGER_LINE, a += FORM)
        word(sum, a, lda, w, ldw, R, P);
    UNROLL(6)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < P; c++)
        v16i_store(lanes[r][c], sum[r][c]);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < P; c++)
            finish(j, panel + c, row + r, lanes[r][c]);
}

#define TILE(R, P)                                                                                 \
    case R:                                                                                        \
        tile(j, panel, row, R, P);                                                                 \
        break;
#if defined(__AVX512F__)
#define MORE_ROWS(P)
#else
#define MORE_ROWS(P) TILE(4, P) TILE(5, P)
#endif
#define TILES(name, P)                                                                             \
    static void name(const cpu_integer_job *j, int64_t panel, int64_t row, int64_t rows) {         \
        switch (rows) {                                                                            \
            TILE(1, P)                                                                             \
            TILE(2, P)                                                                             \
            TILE(3, P)                                                                             \
            MORE_ROWS(P)                                                                           \
        default:                                                                                   \
            tile(j, panel, row, TILE_ROWS, P);                                                     \
        }                                                                                          \
    }
TILES(one_panel, 1)
#if defined(__AVX512F__)
TILES(all_panels, TILE_PANELS)
#else
#define all_panels one_panel
#endif

static void run(const cpu_integer_job *j, int64_t panel, int64_t panels, int64_t row,
                int64_t rows) {
    const int64_t end = panel + panels, last = row + rows;
    while (panel < end) {
        const bool all = end - panel >= TILE_PANELS;
        for (int64_t r = row; r < last; r += TILE_ROWS)
            (all ? all_panels : one_panel)(j, panel, r, last - r);
        panel += all ? TILE_PANELS : 1;
    }
}

extern const cpu_integer_kernels CPU_NAME(cpu_integer);
const cpu_integer_kernels CPU_NAME(cpu_integer) = {
    .row_bytes = row_bytes, .prepare = prepare, .run = run};
