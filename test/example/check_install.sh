#!/usr/bin/env bash
# Installs the library and builds the example against it, through pkg-config and find_package.
set -euo pipefail
if [ "${GQAC_SANITIZED:-0}" != 0 ]; then
  echo "a sanitizer build cannot be linked into a program without its run time"
  exit 77
fi
model="$GQAC_SOURCE_DIR/test/models/llama/model.onnx"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$GQAC_BUILD_DIR" --prefix "$work/prefix" >/dev/null
libdir=$(dirname "$(find "$work/prefix" -name gqac.pc)")
export PKG_CONFIG_PATH="$libdir"

# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$GQAC_SOURCE_DIR/test/example/example.c" -o "$work/by_pkg_config" \
  $(pkg-config --cflags --libs gqac)
cmake -S "$GQAC_SOURCE_DIR/test/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null

expected="6 tokens cached"
passed=0 failed=0
for program in "$work/by_pkg_config" "$work/build/example"; do
  if "$program" "$model" | grep -q "$expected"; then
    passed=$((passed + 1))
  else
    echo "FAIL $program"
    failed=$((failed + 1))
  fi
done
for header in "$work"/prefix/include/gqac/*.h; do
  # every header stands alone, in C and in C++
  if cc -std=c11 -Wall -Wextra -Werror -I"$work/prefix/include" -fsyntax-only -x c "$header" &&
    c++ -Wall -Wextra -Werror -I"$work/prefix/include" -fsyntax-only -x c++ "$header"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
if "$work/prefix/bin/gqac" version | grep -q "^gqac [0-9]"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
