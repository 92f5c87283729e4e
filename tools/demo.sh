#!/usr/bin/env bash
# The main job on the bundled model, a trained Llama with GQA: compile it, write text, show what the
# cache saves and that it changes nothing, then the proof that no split, batch or thread count
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

say "A Llama trained on Jane Austen and exported by the onnxruntime-genai model builder"
"$gqac" inspect "$model" --kv --invariance

say "One GroupQueryAttention node before and after lowering"
show() { # short names for the long ones of the file
  sed -E 's/ loc\(.*//; s#%"/model/layers.0/attn/([A-Za-z_]+)/[^"]*"#%\1#g; s#%"[^"]*/(Sub|Gather)/Cast/output_0"#%\1#g
    s/_sequence_length/_seq/g; s/sequence_length/S/g; s/batch_size/B/g'
}
"$gqac" compile "$model" --dump tidy --stop-after tidy | grep GroupQueryAttention | sed -n 1p | show
echo
"$gqac" compile "$model" --dump lower --stop-after lower |
  grep -E '= (seqlens_to_past|split_heads|rotary|concat_past_present|attention) ' | sed -n 1,7p | show

say "Compile the folder to one artefact: graph, weights, tokenizer, template, settings"
"$gqac" compile "$model" -o "$work/tiny.gqac"
ls -l "$work/tiny.gqac" | awk '{print $5, "bytes"}'

say "Text from the artefact, with the cache"
echo "prompt: $prompt ..."
"$gqac" generate "$work/tiny.gqac" --prompt "$prompt" -n 100 --metrics | tee "$work/on.txt"
say "The same without: every token is computed again at each step"
"$gqac" generate "$work/tiny.gqac" --prompt "$prompt" -n 100 --metrics --kv off | tee "$work/off.txt"
cmp "$work/on.txt" "$work/off.txt"
echo 'the two texts are equal, byte for byte'

say "A prompt after a cached prefix against ONNX Runtime's outputs (a smaller test model)"
ref=test/models/llama/ref/hybrid
"$gqac" run test/models/llama --inputs "$ref/inputs" --output "$work/hybrid" >/dev/null
build/venv/bin/python tools/compare.py "$work/hybrid" "$ref/expect" 2e-5

say "The proof: 100 tokens, every 2-split, ragged batch of 3, 1 and 2 threads"
"$gqac" equiv "$work/tiny.gqac" --tokens 100 --batch 3 --threads 1,2
