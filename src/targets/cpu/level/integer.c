/* linear_integer for one level: y [rows,16] = (a - its zero points) (w - theirs), by words of four
 * k. Where a level sums products of bytes at once, a is four unsigned bytes (i8 codes plus 128):
 *   y = sum of a * w - (zero + 128) * sum of w - zero of the column * sum of (a - zero)
 * elsewhere it is 16-bit differences a - zero, of the k 0 and 2 and of the k 1 and 3 of a word,
 * which meet the bytes of w likewise:
 *   y = sum of (a - zero) * w - zero of the column * sum of (a - zero) */
#include "targets/cpu/integer.h"
#include "targets/cpu/level/level.h"

enum { HALVES = V16I_NIBBLES <= 8, FORM = HALVES ? 8 : 4 }; /* bytes of a word of a */
#if defined(__AVX512F__)
enum { TILE_ROWS = 4, TILE_PANELS = 4 };
#else
enum { TILE_ROWS = 4, TILE_PANELS = 1 };
#endif

static size_t row_bytes(int64_t words) {
    return (size_t)words * FORM;
}

/* Added to codes, so that they are unsigned. */
static int32_t shift_of(const integer_product *p) {
    return p->is_signed ? 128 : 0;
}

/* What lies behind the last k meets zeros of w. */
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

/* Takes off what the zero points make. */
static void finish(const cpu_integer_job *j, int64_t panel, int64_t row, v16i sum) {
    const integer_product *p = &j->p;
    const int32_t *zeros = p->terms + panel * INTEGER_TERMS, *sums = zeros + INTEGER_COLUMNS;
    const uint32_t less = HALVES ? 0u : (uint32_t)(integer_zero(p, row) + shift_of(p));
    const int64_t first = panel * INTEGER_COLUMNS, left = p->n - first;
    const int64_t columns = left < INTEGER_COLUMNS ? left : INTEGER_COLUMNS;
    uint32_t lane[INTEGER_COLUMNS];
    v16i_store(lane, sum);
    for (int i = 0; i < INTEGER_COLUMNS; i++)
        lane[i] -= less * (uint32_t)sums[i] + (uint32_t)zeros[i] * (uint32_t)j->sums[row];
    memcpy(p->y + row * p->n + first, lane, (size_t)columns * sizeof *lane);
}

/* R rows of P panels. */
VEC_FN void tile(const cpu_integer_job *j, int64_t panel, int64_t row, const int R, const int P) {
    const int64_t words = j->p.words;
    const int8_t *w = j->p.w + panel * words * INTEGER_LINE;
    const unsigned char *a = j->form + (size_t)row * row_bytes(words);
    v16i sum[TILE_ROWS][TILE_PANELS];
    UNROLL(4)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < P; c++)
        sum[r][c] = v16i_zero();
    for (int64_t k = 0; k < words; k++, w += INTEGER_LINE, a += FORM) {
        v16i even[TILE_PANELS], odd[TILE_PANELS];
        UNROLL(4)
        for (int c = 0; c < P; c++) {
            even[c] = v16i_load(w + c * words * INTEGER_LINE);
            if (HALVES) {
                odd[c] = v16i_odd_bytes(even[c]);
                even[c] = v16i_even_bytes(even[c]);
            }
        }
        UNROLL(4)
        for (int r = 0; r < R; r++) {
            const unsigned char *at = a + (size_t)r * row_bytes(words);
            const v16i x = spread(at), y = HALVES ? spread(at + 4) : x;
            UNROLL(4)
            for (int c = 0; c < P; c++) {
                if (HALVES)
                    sum[r][c] = v16i_add(
                        sum[r][c], v16i_add(v16i_dot_pairs(even[c], x), v16i_dot_pairs(odd[c], y)));
                else
                    sum[r][c] = v16i_dot_bytes(sum[r][c], x, even[c]);
            }
        }
    }
    UNROLL(4)
    for (int r = 0; r < R; r++)
        UNROLL(4)
    for (int c = 0; c < P; c++)
        finish(j, panel + c, row + r, sum[r][c]);
}

#define TILES(name, P)                                                                             \
    static void name(const cpu_integer_job *j, int64_t panel, int64_t row, int64_t rows) {         \
        switch (rows) {                                                                            \
        case 1:                                                                                    \
            tile(j, panel, row, 1, P);                                                             \
            break;                                                                                 \
        case 2:                                                                                    \
            tile(j, panel, row, 2, P);                                                             \
            break;                                                                                 \
        case 3:                                                                                    \
            tile(j, panel, row, 3, P);                                                             \
            break;                                                                                 \
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
