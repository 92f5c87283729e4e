#!/usr/bin/env python3
"""For tools/demo.sh: 1,500 tokens after a baked prefix of 1,500, compared with 3,000 at once.

    python tools/show_prefix.py GQAC MODEL FOLDER

The bundled model has 1,280 positions. This writes a model with more into FOLDER: the same weights
and longer rotary tables. It asserts equal bits and the numbers of reused and computed tokens, and
prints what was saved; times are only printed.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

PREFIX, NEW, THETA = 1500, 1500, 10000.0


def lengthen(source, folder, positions):
    """Writes the model with that many rows in its rotary tables; existing rows are unchanged."""
    model = onnx.load(source / "model.onnx")
    for table, function in (("cos_cache", np.cos), ("sin_cache", np.sin)):
        value = next(i for i in model.graph.initializer if i.name == table)
        old = numpy_helper.to_array(value)
        half = old.shape[1]
        angles = np.outer(np.arange(positions), THETA ** (-np.arange(half) / half))
        new = function(angles).astype(np.float32)
        assert np.abs(new[:len(old)] - old).max() < 1e-3, table
        new[:len(old)] = old
        value.CopyFrom(numpy_helper.from_array(new, table))
    sizes = {i.name: int(np.prod(i.dims)) for i in model.graph.initializer}
    products = {n.name: sizes[n.input[1]] for n in model.graph.node if n.op_type == "MatMul"}
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    config = json.loads((source / "genai_config.json").read_text())
    config["model"]["context_length"] = config["search"]["max_length"] = positions
    (folder / "genai_config.json").write_text(json.dumps(config))
    shutil.copy(source / "tokenizer.json", folder)
    return products, config["model"]["decoder"]


def operations(products, decoder, past, new):
    """Multiplications and additions for a prompt: products of all rows, but logits of only the last
    one, and attention of the new rows to the past and to each other."""
    each, head = sum(products.values()), max(products.values())
    pairs = new * past + new * (new + 1) // 2
    width = decoder["num_attention_heads"] * decoder["head_size"]
    return 2 * (new * (each - head) + head) + 4 * decoder["num_hidden_layers"] * width * pairs


def run(*words):
    """The JSON that gqac prints."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main(gqac, source, folder):
    """Prints two lines."""
    source, folder = Path(source), Path(folder)
    folder.mkdir()
    products, decoder = lengthen(source, folder, PREFIX + NEW + 1)
    ids, baked = folder / "prefix", folder / "long.gqac"
    ids.write_text(" ".join(str((i * i * 7 + i * 31 + 2) % 510 + 2) for i in range(PREFIX)))
    subprocess.run([gqac, "compile", folder, "-o", baked, "-q", "--bake", ids, "--bake-as", "ids"],
                   check=True)
    proof = run(gqac, "equiv", baked, "--via", "baked", "--tokens", NEW, "--splits",
                f"{PREFIX},{NEW}", "--format", "json", "-q")
    found = [proof[k] for k in ("tokens", "differing", "reused_tokens", "computed_tokens")]
    assert found == [PREFIX + NEW, 0, PREFIX, NEW], found
    print(f"{PREFIX} tokens were reused and {NEW} computed; of {proof['compared']} logits and cached "
          "values, none has other bits")
    rows = {r["name"]: r for r in run(
        gqac, "bench", folder, "-p", PREFIX + NEW, "-n", 1, "--prefix", f"{PREFIX}:{NEW}",
        "--repeat", 1, "--format", "json", "-q")["rows"]}
    whole, rest = rows[f"pp{PREFIX + NEW}"]["ms"], rows[f"hp{NEW}@{PREFIX}"]["ms"]
    counted = operations(products, decoder, 0, PREFIX + NEW) / operations(products, decoder, PREFIX, NEW)
    print(f"{rest:.0f} ms instead of {whole:.0f} ms: {whole / rest:.2f} times as fast (expected: "
          f"{(PREFIX + NEW) / NEW:.2f} by the number of tokens, {counted:.2f} by that of operations)")


if __name__ == "__main__":
    main(*sys.argv[1:])
