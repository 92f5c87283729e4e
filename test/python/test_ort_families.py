#!/usr/bin/env python3
"""The execution provider for ONNX Runtime, with models of other exporters (test/traced) and
decoders with each op of attention (decoders.py).

No node is left to the CPU provider, with and without ONNX Runtime's optimisation of the graph, and
the bits are those of `gqac run`.
"""

import sys

import numpy as np
import onnx
from onnx import helper

import decoders
import harness
from decoders import Decoder
from harness import FULL, ROOT
from ort_sessions import RUNTIME, Sessions, differences, read, since

TRACED = ROOT / "test" / "traced"
# The oldest runtime that supports the opset of a file.
OLDEST = {"mobius-gemma3/model.onnx": (1, 24), "mobius-static/model.onnx": (1, 24)}
FILES = [name for name in sorted(str(path.relative_to(TRACED)) for path in TRACED.glob("*/*.onnx"))
         if RUNTIME >= OLDEST.get(name, (1, 23))]
SHORT = ["mistral/model.onnx", "dynamo-llama-no-cache/model.onnx", "t5/decoder_with_past_model.onnx"]
ONE_ROW = ["dynamo-llama-no-cache/model.onnx"]  # its angles have one row for any input
NEWER = ["attention_window", "recurrent_alone"]  # of opset 27, which ONNX Runtime does not have yet
KINDS = [kind for kind in decoders.KINDS if kind not in NEWER]


def filled(path, rows):
    """Random inputs of a graph: `rows` sequences without padding, and different lengths for all
    other symbols of the shapes."""
    random, lengths, feeds = np.random.default_rng(7), {}, {}
    for value in onnx.load(path).graph.input:
        shape = [dim.dim_value or (lengths.setdefault(dim.dim_param, 5 + len(lengths)) if at else rows)
                 for at, dim in enumerate(value.type.tensor_type.shape.dim)]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.float32:
            feeds[value.name] = random.standard_normal(shape, np.float32)
        elif "mask" in value.name:
            feeds[value.name] = np.ones(shape, dtype)
        else:
            feeds[value.name] = random.integers(3, 50, shape, dtype)
    return feeds


class Families(Sessions):
    """Sessions compared with `gqac run`."""

    def compare(self, path, calls):
        """Two sessions, optimised and not, run these calls; gqac runs all nodes."""
        runs = []
        for feeds in calls:
            folder = self.dir / f"in-{len(list(self.dir.iterdir()))}"
            folder.mkdir()
            for name, value in feeds.items():
                np.save(folder / f"{name}.npy", value)
            runs.append((feeds, self.run_alone(path, folder)))
        self.assertEqual(differences(path, runs, self.dir), [], path)

    def test_traced(self):
        """The stored calls of a file; if it has none, one with random inputs."""
        for name in FILES if FULL else SHORT:
            path = TRACED / name
            stored = [read(folder) for folder in sorted(path.parent.glob("ref/*/inputs"))]
            self.compare(path, stored or [filled(path, 1 if name in ONE_ROW else 2)])

    @since(30, "lacks ops of these decoders, or their opset")
    def test_decoders(self):
        """A first call."""
        for kind in KINDS if FULL else ["packed_padded", "masked_decoder_buffer"]:
            decoder, path = Decoder(kind), self.dir / f"{kind}.onnx"
            decoder.save(path)
            feeds = decoder.empty([7, 9])
            if "past_sequence_length" in feeds:
                feeds["past_sequence_length"] = np.zeros(1, np.int32)
            self.compare(path, [feeds])


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
