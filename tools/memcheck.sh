#!/usr/bin/env bash
# Runs C tests under valgrind's memcheck: an access to memory that was not allocated or was freed, a
# decision that depends on an uninitialised value, or a leaked allocation makes a test fail. Run by
# hand, not by ./dev test: a test takes about fifty times as long.
#
#   tools/memcheck.sh [TEST...]      names as ctest has them, such as kv_slabs; default: all C tests
#
# Needs valgrind, and builds build/memcheck. valgrind emulates a fused multiply-add in software,
# hundreds of times slower than the processor, so in this build it is a product and a sum. That
# rounds twice: bits differ from those of other builds, accesses to memory do not. Tests that compare
# with exact results need another build; the environment variable TESTS names its folder of tests,
# such as build/release/test.
#
# The level of `cpu` is GQAC_CPU (environment, default scalar); avx2 takes a quarter of the time, and
# valgrind does not support AVX-512. A test has SECONDS_EACH (default 300) seconds of CPU time.
# Prints a line for each test; the output of those that fail is in build/memcheck. The exit code is
# 1 if one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=build/memcheck limit=${SECONDS_EACH:-300} tests=${TESTS:-build/memcheck/test}
# Tests that valgrind cannot run, because of libraries of a GPU (also cuda_*, whose emulator has
# stacks of its own) or a sandbox; and a soak, which is long.
left_out=" targets_gpu_blocks targets_gpu_top cli_sandbox sched_soak "

mkdir -p $out
[ -e $out/unfused.h ] || cat >$out/unfused.h <<'END'
#ifdef __AVX2__
#include <immintrin.h>
#define _mm256_fmadd_ps(a, b, c) _mm256_add_ps(_mm256_mul_ps(a, b), c)
#endif
#define __builtin_fmaf(a, b, c) ((a) * (b) + (c))
END
if [ -z "${TESTS:-}" ]; then
  cmake --preset release -B $out -DGQAC_BUILD_LEVELS=machine \
    -DCMAKE_C_FLAGS="-include $PWD/$out/unfused.h -DFUZZ_SECONDS=600" >/dev/null
  cmake --build $out --target c_tests
fi
# In glibc, __memmove_chk and __memcpy_chk are one function, and valgrind takes it for the latter.
cat >$out/suppressions <<'END'
{
   memmove
   Memcheck:Overlap
   fun:__memcpy_chk
   fun:memmove
}
END
# valgrind 3.19 does not support openat2, whose RESOLVE_BENEATH is replaced by a comparison of paths
# after the file has been opened.
cat >$out/openat2.c <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static const char *path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}
static bool is_beneath(int folder, int file) {
    char base[4096], path[4096];
    const size_t n = strlen(path_of(folder, base, sizeof base));
    path_of(file, path, sizeof path);
    return n > 0 && !strncmp(path, base, n) && (path[n] == '/' || !path[n]);
}
long syscall(long number, ...) {
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2) {
        const int folder = (int)a[0];
        const char *name = (const char *)a[1];
        const struct open_how *how = (const struct open_how *)a[2];
        const bool beneath = how->resolve & RESOLVE_BENEATH;
        const int file = beneath && name[0] == '/'
                             ? -1
                             : openat(folder, name, (int)how->flags, (mode_t)how->mode);
        if (file >= 0 && (!beneath || is_beneath(folder, file)))
            return file;
        if (file >= 0)
            close(file);
        if (file >= 0 || name[0] == '/')
            errno = EXDEV;
        return -1;
    }
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
END
cc -D_GNU_SOURCE -shared -fPIC -o $out/openat2.so $out/openat2.c

# check NAME: runs a test; prints the result
check() {
  local log=$out/$1.log status=0 used
  (
    ulimit -t "$limit"
    TIMEFORMAT=%U
    time GQAC_CPU="${GQAC_CPU:-scalar}" LD_PRELOAD=$out/openat2.so valgrind -q \
      --suppressions=$out/suppressions --error-exitcode=9 --leak-check=full \
      --errors-for-leak-kinds=definite --show-leak-kinds=definite "$tests/test_$1" >"$log" 2>&1
  ) 2>$out/time || status=$?
  used=$(tail -n 1 $out/time)
  case $status in
  0) echo "$1: clean, $(tail -n 1 "$log"), $used s" ;;
  9) echo "$1: valgrind found errors, $used s" ;;
  137 | 152) echo "$1: not done in $limit s" ;;
  *) echo "$1: failed, $(tail -n 1 "$log"), $used s" ;;
  esac
  [ $status != 0 ] || rm "$log"
  return $status
}

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd "$tests" && ls test_* | sed 's/^test_//' | sort)
failed=0
for name in "${names[@]}"; do
  case $left_out$name in *" $name "* | *" cuda_"*) continue ;; esac
  check "$name" || failed=1
done
exit $failed
