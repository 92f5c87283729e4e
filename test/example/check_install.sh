#!/usr/bin/env bash
# Installs the library and builds the examples against it, through pkg-config and find_package.
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

# Four ways: by pkg-config and by find_package, with the shared library and with the static one.
for kind in gqac gqac-static; do
  mkdir "$work/$kind.pc"
  for name in example generate host schedule; do
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Wextra -Werror "$GQAC_SOURCE_DIR/test/example/$name.c" \
      -o "$work/$kind.pc/$name" $(pkg-config --cflags --libs $kind) -Wl,-rpath,"$libdir/.."
  done
done
for kind in gqac static; do
  cmake -S "$GQAC_SOURCE_DIR/test/example" -B "$work/$kind" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DGQAC_LIBRARY=gqac::$kind >/dev/null
  cmake --build "$work/$kind" >/dev/null
done

passed=0 failed=0
expect() { # FOLDER PROGRAM TEXT
  local out
  out=$("$work/$1/$2" "$model") # not a pipe: grep -q would end it early
  if grep -q "$3" <<<"$out"; then
    passed=$((passed + 1))
  else
    echo "FAIL $1/$2"
    failed=$((failed + 1))
  fi
}
for folder in gqac.pc gqac-static.pc gqac static; do
  expect $folder example "6 tokens cached"
  expect $folder host "request 5: .* answered with the bits of a run alone"
  shared=$(ldd "$work/$folder/example" | grep -c "libgqac.so.0 => $work/prefix" || true)
  if [ "$shared" = "$([[ $folder == *static* ]] && echo 0 || echo 1)" ]; then
    passed=$((passed + 1))
  else
    echo "FAIL $folder is linked to the other library"
    failed=$((failed + 1))
  fi
done
answer=$("$work/gqac.pc/generate" "$GQAC_SOURCE_DIR/models/tiny-gqa" "She had been")
if [ "$answer" != "${answer/ spoken of, and the first time/}" ] && [[ $answer == *"(length, "* ]]; then
  passed=$((passed + 1))
else
  echo "FAIL generate: $answer"
  failed=$((failed + 1))
fi
answers=$("$work/static/schedule" "$GQAC_SOURCE_DIR/models/tiny-gqa" "She had been" "He was" | grep "'")
if [[ $answers == "request 2: '"*"request 1: ' spoken of, and the first"*"(length)" ]]; then
  passed=$((passed + 1))
else
  echo "FAIL schedule: $answers"
  failed=$((failed + 1))
fi
# The execution provider for ONNX Runtime; test/python/test_ort_plugin.py uses it.
if [[ $(nm -D "$libdir/../libgqac_ort.so") == *" T CreateEpFactories"* ]]; then
  passed=$((passed + 1))
else
  echo "FAIL libgqac_ort.so"
  failed=$((failed + 1))
fi
# A page of the manual for each verb and for gqac, and the completion of bash.
for verb in "" $("$work/prefix/bin/gqac" completion | sed -n 's/^  \([a-z]*\)) flags=.*/-\1/p'); do
  page="$work/prefix/share/man/man1/gqac$verb.1"
  if [ -s "$page" ] && [ "$("$work/prefix/bin/gqac" man ${verb#-})" = "$(cat "$page")" ]; then
    passed=$((passed + 1))
  else
    echo "FAIL gqac$verb(1)"
    failed=$((failed + 1))
  fi
done
if bash -c "source '$work/prefix/share/bash-completion/completions/gqac' && complete -p gqac" >/dev/null; then
  passed=$((passed + 1))
else
  echo "FAIL completion"
  failed=$((failed + 1))
fi
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
