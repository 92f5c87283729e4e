#!/bin/sh
# Compiles src/numerics/{math,convert,contract}.h as OpenCL C 1.2 (clang) and as CUDA C (nvcc), once
# through their includes and once as one concatenated text, which is how a run-time compiler gets
# them; and the kernels of the target gpu as OpenCL C. Usage: check_dialects.sh [SOURCE_DIR]; exit 77 when neither compiler is there.
set -eu
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
checked=0

body='{
    float v = x[i];
    float s = gqn_expf(v) + gqn_tanhf(v) + gqn_erff(v) + gqn_logf(v) + gqn_sinf(v) + gqn_cosf(v);
    s += gqn_sigmoidf(v) + gqn_softplusf(v) + gqn_rsqrt(v) + gqn_powf(v, s) + gqn_round_even(v);
    s += gqn_f16_to_f32(h[i]) + gqn_bf16_to_f32(gqn_f32_to_bf16(v)) + (float)GQAC_KEY_TILE;
    s += (float)(gqn_f32_to_i32(v) + gqn_int4_of((gqn_u8)i, 1u) + gqn_quantise(v, -128, 127));
    s += (float)gqn_f32_to_u32(v) + (float)gqn_f32_to_i64(v) + (float)gqn_f32_to_u64(v);
    s += gqn_bf16_to_f32(gqn_bf16_factor(v));
    y[i] = s;
    h[i] = gqn_f32_to_f16(s);
}'
cl_head='__kernel void k(__global float *y, __global const float *x, __global ushort *h) {
    size_t i = get_global_id(0);'
cu_head='extern "C" __global__ void k(float *y, const float *x, unsigned short *h) {
    unsigned i = threadIdx.x;'
includes='#include "numerics/contract.h"
#include "numerics/math.h"
#include "numerics/convert.h"'

for form in included whole; do
    for kind in cl cu; do
        if [ "$form" = included ]; then
            echo "$includes" >"$form.$kind"
        else
            for h in contract dialect math convert; do cat "$root/src/numerics/$h.h"; done >"$form.$kind"
        fi
    done
    printf '%s\n%s}\n' "$cl_head" "$body" >>"$form.cl"
    printf '%s\n%s}\n' "$cu_head" "$body" >>"$form.cu"
    # with every include path gone, the concatenated text must stand alone
    path="-I$root/src"
    [ "$form" = whole ] && path="-I$work"

    if command -v clang >/dev/null 2>&1; then
        clang -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -O3 -emit-llvm -S -o /dev/null -Wall -Wextra \
            -Werror $path "$form.cl"
        echo "OpenCL C, $form: ok"
        checked=1
    fi
    nvcc=$(command -v nvcc || true)
    [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ] && nvcc=/usr/local/cuda/bin/nvcc
    if [ -n "$nvcc" ]; then
        "$nvcc" -fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Werror all-warnings -ptx \
            $path -o "$form.ptx" "$form.cu"
        # the contract in the machine's own words: nothing fusible (add and mul
        # without .rn), flushed or approximated
        if grep -E '(add|sub|mul|mad)\.f32|\.ftz|\.approx|div\.full' "$form.ptx"; then
            echo "CUDA, $form: an instruction outside the contract" >&2
            exit 1
        fi
        echo "CUDA C, $form: ok"
        checked=1
    fi
done

if command -v clang >/dev/null 2>&1; then
    echo '#define ATTEND_SIZE 64
#define ATTEND_FEW_ROWS 8
#define ATTEND_FEW_ITEMS 128
#define ATTEND_MANY_ROWS 64
#define ATTEND_MANY_ITEMS 256
#define ATTEND_MERGERS 128
#define ATTEND_MOST 256
#define KV_SLABS 16
#define BROADCAST_RANK 8
#define BOX_RANK 8
#define KV_BLOCK 64' >kernels.cl
    for h in contract dialect math convert; do cat "$root/src/numerics/$h.h"; done >>kernels.cl
    for k in language.h values.h fours.cl weights.cl products.cl nbits.cl attend_common.cl \
        attend_few.cl attend_many.cl attention.cl rows.cl heads.cl; do
        cat "$root/src/targets/gpu/kernels/$k"
    done >>kernels.cl
    clang -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -O3 -emit-llvm -S -o /dev/null \
        -Wall -Wextra -Werror kernels.cl
    echo "kernels of the target gpu: ok"
fi
[ "$checked" = 1 ] || exit 77
echo "1 passed, 0 failed"
