#!/usr/bin/env bash
# The main purpose on the bundled model, in one screen: compile it, write text, show what the cache
# saves and that it changes nothing, then the proof that no split, batch or number of threads
# changes a bit.
set -euo pipefail
gqac=$1
model=models/tiny-gqa
prompt="She had been a very short time at home, when"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
  printf '\n== %s\n' "$*"
}

# Text to one file, metrics to another.
write() { # NAME, FLAGS
  "$gqac" generate "$work/tiny.gqac" --prompt "$prompt" -n 34 --metrics "${@:2}" \
    >"$work/$1.txt" 2>"$work/$1.metrics"
}
metrics() { # NAME, WORDS
  awk -v label="$2" '
    /^time to first token/ { first = $5 }
    /^decode/ { speed = $2 }
    /^tokens/ { computed = $5 }
    END { printf "%s %4d tokens computed; first new token after %.1f ms, then %.0f tokens per second\n",
          label, computed, first, speed }' "$work/$1.metrics"
}

say "1. An ONNX model (a small Llama with grouped-query attention, trained on Jane Austen) becomes one file"
echo "\$ gqac compile $model -o tiny.gqac"
"$gqac" compile "$model" -o "$work/tiny.gqac" 2>&1 | sed "s|$work/||; s/^gqac: //"

say "2. It continues a text"
echo "\$ gqac generate tiny.gqac --prompt \"$prompt\" -n 34"
write on
write off --kv off
fold -s -w 110 "$work/on.txt"

say "3. What the KV cache saves: the same text with it and without it"
metrics on '--kv contiguous:'
metrics off '--kv off:       '
cmp "$work/on.txt" "$work/off.txt"
echo 'the two texts are equal, byte for byte'

say "4. A prompt of 24 tokens, 9 of them cached, compared with ONNX Runtime (the model is test/models/llama)"
ref=test/models/llama/ref/hybrid
"$gqac" run test/models/llama --inputs "$ref/inputs" --output "$work/hybrid" >/dev/null
build/venv/bin/python tools/compare.py "$work/hybrid" "$ref/expect" 2e-5 |
  sed -n '1s/^logits.*= /logits: the largest difference, relative to the largest logit, is /p'

say "5. A prompt of 3,000 tokens: all of them computed, or 1,500 read from the compiled file"
build/venv/bin/python tools/show_prefix.py "$gqac" "$model" "$work/long"

say "6. The proof: 100 tokens in every split into two calls, in a batch of 3, on 1 and 2 threads; no bit differs"
echo "\$ gqac equiv tiny.gqac --tokens 100 --batch 3 --threads 1,2"
"$gqac" equiv "$work/tiny.gqac" --tokens 100 --batch 3 --threads 1,2 -q

say "Next: talk to this model with the first command, or run your own as the page says"
echo "$gqac chat $model"
echo "docs/getting-a-model.md"
