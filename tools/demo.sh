#!/usr/bin/env bash
# The main job on the bundled model, in one screen: compile it, write text, show what the cache saves
# and that it changes nothing, then the proof that no split, batch or thread count changes a bit.
set -euo pipefail
gqac=$1
model=models/tiny-gqa
prompt="She had been a very short time at home, when"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
  printf '\n== %s\n' "$*"
}

# Text to one file, metrics to another: they are printed one after the other.
write() { # NAME, FLAGS
  "$gqac" generate "$work/tiny.gqac" --prompt "$prompt" -n 60 --metrics "${@:2}" \
    >"$work/$1.txt" 2>"$work/$1.metrics"
}
metrics() { # NAME
  grep -E '^(kv cache|time|decode|tokens)' "$work/$1.metrics" | tr -s ' ' | paste -sd ';' | sed 's/;/; /g'
}

say "A Llama with grouped-query attention, trained on Jane Austen, exported to ONNX by genai's model builder"
"$gqac" inspect "$model" --invariance
"$gqac" compile "$model" -o "$work/tiny.gqac" -q
echo "compiled to one file of $(stat -c %s "$work/tiny.gqac") bytes, with tokenizer, template and settings"

say "Text from that file"
write on
write off --kv off
fold -s -w 100 <(printf '%s' "$prompt"; cat "$work/on.txt")

say "The same with a cache and without one"
metrics on
metrics off
cmp "$work/on.txt" "$work/off.txt"
echo 'the two texts are equal, byte for byte'

say "15 tokens after 9 cached ones, beside ONNX Runtime's outputs (test/models/llama)"
ref=test/models/llama/ref/hybrid
"$gqac" run test/models/llama --inputs "$ref/inputs" --output "$work/hybrid" >/dev/null
build/venv/bin/python tools/compare.py "$work/hybrid" "$ref/expect" 2e-5 | sed -n 1p

say "1,500 new tokens after a baked prefix of 1,500, beside 3,000 at once"
build/venv/bin/python tools/show_prefix.py "$gqac" "$model" "$work/long"

say "The proof: 100 tokens in every 2-split, a batch of 3 with other splits, 1 and 2 threads"
"$gqac" equiv "$work/tiny.gqac" --tokens 100 --batch 3 --threads 1,2
