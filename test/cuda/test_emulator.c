/* What tests of CUDA kernels rely on: the emulator multiplies as the PTX manual defines, and
 * detects defects that a device might hide. */
#include "unit.h"

#include "emulator.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16 };

/* The defect of a kernel. */
enum { RIGHT, WRONG_FRAGMENT, NO_WAIT, NO_BARRIER };

typedef struct arguments {
    const ushort *a, *b; /* [16][16], [8][16] */
    float *y;            /* [16][8] */
    int defect;
} arguments;

static uint pair_of(const ushort *row, int k) {
    return row[k] | (uint)row[k + 1] << 16;
}

/* A warp multiplies; each item copies 16 bytes of a, and every other item 16 bytes of b. */
static void multiply(const void *given) {
    const arguments *of = given;
    SHARED ushort a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    const int lane = (int)get_local_id(0), g = lane / 4, q = lane % 4;
    const int other = of->defect == WRONG_FRAGMENT ? q : g;
    copy_async(a + lane * 8, of->a + lane * 8, true);
    if (lane % 2 == 0)
        copy_async(b + lane * 4, of->b + lane * 4, true);
    copy_commit();
    if (of->defect != NO_WAIT)
        copy_wait(0);
    if (of->defect != NO_BARRIER)
        barrier(CLK_LOCAL_MEM_FENCE);
    const ushort *low = a + other * DEPTH, *high = a + (g + 8) * DEPTH, *column = b + g * DEPTH;
    const float4 y = mma_bf16(pair_of(low, 2 * q), pair_of(high, 2 * q), pair_of(low, 2 * q + 8),
                              pair_of(high, 2 * q + 8), pair_of(column, 2 * q),
                              pair_of(column, 2 * q + 8), FLOAT4(1.0f, 1.0f, 1.0f, 1.0f));
    float *to = of->y + g * COLUMNS + 2 * q;
    to[0] = y.x;
    to[1] = y.y;
    to[8 * COLUMNS] = y.z;
    to[8 * COLUMNS + 1] = y.w;
}

/* True if a run in either way computes a wrong element; products of small integers are exact. */
static bool finds(int defect) {
    _Alignas(16) ushort a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    float y[ROWS * COLUMNS];
    bool wrong = false;
    const arguments of = {.a = a, .b = b, .y = y, .defect = defect};
    for (int i = 0; i < ROWS * DEPTH; i++)
        a[i] = gqn_f32_to_bf16((float)(i * 7 % 31 - 11));
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        b[i] = gqn_f32_to_bf16((float)(i * 5 % 23 - 9));
    for (int late = 0; late < 2; late++) {
        emulate(multiply, &of, 1, 1, 32, late);
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < COLUMNS; column++) {
                float sum = 1.0f;
                for (int k = 0; k < DEPTH; k++)
                    sum += gqn_bf16_to_f32(a[row * DEPTH + k]) *
                           gqn_bf16_to_f32(b[column * DEPTH + k]);
                wrong = wrong || !(y[row * COLUMNS + column] == sum);
            }
    }
    return wrong;
}

static void test_right(void) {
    CU_ASSERT_FALSE(finds(RIGHT));
}

static void test_defects(void) {
    CU_ASSERT_TRUE(finds(WRONG_FRAGMENT));
    CU_ASSERT_TRUE(finds(NO_WAIT));
    CU_ASSERT_TRUE(finds(NO_BARRIER));
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"a product of a warp", test_right},
                                      {"a defect is found", test_defects}};
    return unit_run("cuda_emulator", cases, sizeof cases / sizeof *cases, argc, argv);
}
