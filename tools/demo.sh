#!/usr/bin/env bash
# The main job on the bundled model: compile, prefill, hybrid prefill, decode against the stored
# results of ONNX Runtime, then the proof that no split, batch or thread count changes a bit.
set -euo pipefail
gqac=$1
model=test/models/llama
ref=$model/ref
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
  printf '\n== %s\n' "$*"
}

say "A Llama exported by the onnxruntime-genai model builder (6 query heads, 2 KV heads, D 32)"
"$gqac" inspect "$model" --kv --invariance

say "One GroupQueryAttention node before and after lowering"
show() { # short names for the long ones of the file
  sed -E 's/ loc\(.*//; s#%"/model/layers.0/attn/([A-Za-z_]+)/[^"]*"#%\1#g; s#%"[^"]*/(Sub|Gather)/Cast/output_0"#%\1#g
    s/_sequence_length/_seq/g; s/sequence_length/S/g; s/batch_size/B/g'
}
"$gqac" compile "$model" --dump tidy --stop-after tidy | grep GroupQueryAttention | head -n 1 | show
echo
"$gqac" compile "$model" --dump lower --stop-after lower |
  grep -E '= (seqlens_to_past|split_heads|rotary|concat_past_present|attention) ' | head -n 7 | show

say "Compile to an artefact"
"$gqac" compile "$model" -o "$work/llama.gqac"
ls -l "$work/llama.gqac" | awk '{print $5, "bytes"}'

for call in prefill hybrid decode; do
  say "$call: the artefact against ONNX Runtime's outputs"
  "$gqac" run "$work/llama.gqac" --inputs "$ref/$call/inputs" --output "$work/$call" >/dev/null
  build/venv/bin/python tools/compare.py "$work/$call" "$ref/$call/expect" 2e-5
done

say "Score 48 tokens, in one call and split 9 + 15 + 24"
"$gqac" score "$work/llama.gqac" --ids "$ref/ids.txt" --logits "$work/full.npy"
"$gqac" score "$work/llama.gqac" --ids "$ref/ids.txt" --splits 9,15 --logits "$work/split.npy"
cmp "$work/full.npy" "$work/split.npy" && echo "the logits files are equal, byte for byte"

say "The proof: 100 tokens, every 2-split, ragged batch of 3, 1 and 2 threads"
"$gqac" equiv "$work/llama.gqac" --tokens 100 --batch 3 --threads 1,2
