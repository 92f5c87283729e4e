#!/usr/bin/env python3
"""SparseAttention compared with ONNX Runtime: random layouts of blocks, prompts and decode.

    python test/python/test_sparse_ort.py        (GQAC_TEST_SEED chooses other cases)

Only elements that both define are compared: rows of existing tokens, cached rows below the length.
ONNX Runtime gets each batch row separately: in its kernel, the probabilities of a shorter row next
to a longer one do not sum to 1, and rotary positions after the first row of a decode are not set.
"""

import random
import sys
import unittest

import numpy as np
import onnx
from onnx import numpy_helper

import decoders
import harness
import ortnodes
from harness import FULL, gqac, relative
from ortnodes import Node, Nodes, floats

COUNT = 240 if FULL else 40
LAYOUT = ("block_row_indices", "block_col_indices")


def layout_of(rng, layouts, blocks, room):
    """A lower triangle for each layout, including its diagonal, and `room` columns of -1 after
    it."""
    masks = np.tril(rng.random((layouts, blocks, blocks)) < 0.4) | np.eye(blocks, dtype=bool)
    rows = np.zeros((layouts, blocks + 1), np.int32)
    rows[:, 1:] = np.cumsum(masks.sum(2), 1)
    cols = np.full((layouts, int(rows.max()) + room), -1, np.int32)
    for index, mask in enumerate(masks):
        cols[index, :rows[index, -1]] = np.nonzero(mask)[1]
    return rows, cols


class SparseDecoder(decoders.Decoder):
    """A decoder with such a layer, whose pasts are buffers."""

    def sparse(self, layer, x):
        """Lengths from the attention mask, one layout."""
        past, present = self.pair(layer, decoders.KV_HEADS, (decoders.ROOM, decoders.ROOM))
        layout = layout_of(np.random.default_rng(layer), 1, decoders.ROOM // 16, 0)
        lengths = self.once("_lengths", lambda: self.node("Cast", self.valid(), to=decoders.I32))
        total = self.once("_total", lambda: self.node("Cast", self.node(
            "Shape", "attention_mask", start=1, end=2), to=decoders.I32))
        return self.node(
            "SparseAttention", *self.qkv(layer, x, decoders.KV_HEADS), *past,
            *(self.constant(f"{n}{layer}", v) for n, v in zip(LAYOUT, layout)), total, lengths,
            out=[f"y{layer}", *present], domain="com.microsoft", num_heads=decoders.HEADS,
            kv_num_heads=decoders.KV_HEADS, sparse_block_size=16)


class Sparse(Node):
    """One node; the layout is in the file."""

    def feeds(self):
        return {n: v for n, v in super().feeds().items() if n not in LAYOUT}

    def model(self):
        model = super().model()
        for name in LAYOUT:
            model.graph.initializer.append(numpy_helper.from_array(self.inputs[name], name))
        return model

    def row(self, b):
        """Batch row b alone, without its padding."""
        inputs = dict(self.inputs)
        length = int(inputs["key_total_sequence_lengths"][b])
        for name in ("query", "key", "value"):
            if inputs[name] is not None:
                inputs[name] = inputs[name][b:b + 1, :length].copy()
        for name in ("past_key", "past_value"):
            inputs[name] = inputs[name][b:b + 1].copy()
        for name in ("total_sequence_length", "key_total_sequence_lengths"):
            inputs[name] = np.array([length], np.int32)
        return Sparse(self.op, self.domain, inputs, self.outputs, **self.attributes)

    def peer(self):
        """Past and present are one buffer."""
        options = ortnodes.ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = ortnodes.ort.InferenceSession(self.model().SerializeToString(), options,
                                                providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        feeds = {n: v.copy() for n, v in self.feeds().items()}  # the values do not own them
        held = {n: ortnodes.ort.OrtValue.ortvalue_from_numpy(v) for n, v in feeds.items()}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        for name in ("key", "value"):
            binding.bind_ortvalue_output(f"present_{name}", held[f"past_{name}"])
        binding.bind_output("output")
        session.run_with_iobinding(binding)
        made = dict(zip(["present_key", "present_value", "output"], binding.get_outputs()))
        return [made[n].numpy().copy() for n in self.outputs]


def sparse(rng, pick, decode):
    """A random SparseAttention: a prompt padded on the right, or one token after a past."""
    batch, kv_heads, layouts = pick.choice([1, 2, 2, 3]), pick.choice([1, 2]), pick.choice([1, 2])
    heads = kv_heads * pick.choice([2, 4])
    size, block = pick.choice([48, 64]), pick.choice([16, 32])
    blocks = pick.choice([3, 7, 20])
    room = blocks * block
    total = pick.choice([1, block, room]) if pick.random() < 0.3 else pick.randint(2, room)
    rows = 1 if decode else total
    total = max(total, 2) if decode else total
    lengths = rng.integers(1, total + 1, batch).astype(np.int32)
    lengths[pick.randrange(batch)] = total
    packed, rotary = pick.random() < 0.5, pick.randint(0, 1)
    block_rows, block_cols = layout_of(rng, layouts, blocks, pick.choice([0, 2]))
    angle = np.arange(room)[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))
    width = heads + 2 * kv_heads if packed else heads
    inputs = {
        "query": floats(rng, batch, rows, width * size),
        "key": None if packed else floats(rng, batch, rows, kv_heads * size),
        "value": None if packed else floats(rng, batch, rows, kv_heads * size),
        "past_key": floats(rng, batch, kv_heads, room, size),
        "past_value": floats(rng, batch, kv_heads, room, size),
        "block_row_indices": block_rows,
        "block_col_indices": block_cols,
        "total_sequence_length": np.array([total], np.int32),
        "key_total_sequence_lengths": lengths,
        "cos_cache": np.cos(angle).astype(np.float32) if rotary else None,
        "sin_cache": np.sin(angle).astype(np.float32) if rotary else None,
    }
    extra = {"scale": 0.2} if pick.random() < 0.3 else {}
    return Sparse("SparseAttention", "com.microsoft", inputs,
                  ["output", "present_key", "present_value"], num_heads=heads,
                  kv_num_heads=kv_heads, sparse_block_size=block, do_rotary=rotary,
                  rotary_interleaved=pick.randint(0, 1) if rotary else 0, **extra)


class SparseAttention(Nodes):
    """The node in both runtimes and on both targets, and refusals."""

    def agree(self, decode):
        """Random nodes in ONNX Runtime and in gqac."""
        rng, pick = np.random.default_rng(ortnodes.SEED), random.Random(ortnodes.SEED)
        worst, ragged = 0.0, 0
        for number in range(COUNT):
            node = sparse(rng, pick, decode)
            lengths = node.inputs["key_total_sequence_lengths"]
            ragged += len(set(lengths)) > 1
            ours = self.ours(node)
            for b, length in enumerate(lengths):
                for name, got, wanted in zip(node.outputs, ours, node.row(b).peer()):
                    held = np.s_[:, :length] if name != "output" else np.s_[:wanted.shape[1]]
                    self.assertEqual(got.shape[2:], wanted.shape[2:], f"{name}: {node}")
                    off = relative(got[b][held], wanted[0][held])
                    self.assertLessEqual(off, ortnodes.LIMIT, f"case {number} {name} {b}: {node}")
                    worst = max(worst, off)
        print(f"{COUNT} compared, {ragged} of several lengths, largest error {worst:.1e}")
        self.assertGreater(ragged, COUNT // 4)

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it.
    @unittest.skipUnless(ortnodes.ort, "onnxruntime is not installed")
    def test_prompt(self):
        """All tokens at once, rows of several lengths."""
        self.agree(False)

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it.
    @unittest.skipUnless(ortnodes.ort, "onnxruntime is not installed")
    def test_decode(self):
        """One token after a past, whose length differs between rows."""
        self.agree(True)

    def test_bits(self):
        """Levels, threads and the other rows change nothing; the definition is close."""
        rng, pick = np.random.default_rng(3), random.Random(3)
        for number in range(8):
            node = sparse(rng, pick, number % 2 == 1)
            ours = self.ours(node)
            folder = self.dir / "case"
            for flags, level in (("--threads", 2), {}), ((), {"GQAC_CPU": "scalar"}), (
                    ("--target", "ref"), {}):
                self.check(gqac("run", folder / "node.onnx", "--inputs", folder / "in", "--output",
                                folder / "again", "-q", *flags, env=level), 0)
                for name, got in zip(node.outputs, ours):
                    again = np.load(folder / "again" / f"{name}.npy")
                    if "ref" in flags:
                        self.assertLessEqual(relative(got, again), ortnodes.LIMIT, str(node))
                    else:
                        self.assertEqual(got.tobytes(), again.tobytes(), f"{level} {name}: {node}")
            for b, length in enumerate(node.inputs["key_total_sequence_lengths"]):
                for name, got, alone in zip(node.outputs, ours, self.ours(node.row(b))):
                    held = np.s_[:, :length] if name != "output" else np.s_[:alone.shape[1]]
                    self.assertEqual(got[b][held].tobytes(), alone[0][held].tobytes(),
                                     f"case {number} {name} {b}: {node}")

    def refused(self, change, *words, target=()):
        """A node with a changed input is refused before or during its run."""
        rng, pick = np.random.default_rng(5), random.Random(5)
        node = sparse(rng, pick, False)
        while node.inputs["query"].shape[1] <= 2 * node.attributes["sparse_block_size"]:
            node = sparse(rng, pick, False)
        change(node.inputs)
        onnx.save(node.model(), self.dir / "bad.onnx")
        folder = self.dir / "bad"
        folder.mkdir(exist_ok=True)
        for name, value in node.feeds().items():
            np.save(folder / f"{name}.npy", value)
        result = gqac(*(target or ("run", self.dir / "bad.onnx", "--inputs", folder, "--output",
                                   self.dir / "out", "-q")))
        self.assertNotEqual(result.code, 0)
        for word in words:
            self.assertIn(word, result.err)

    def test_layouts(self):
        """Layouts with an invalid block, a later one, or without the diagonal are refused when
        compiling."""
        compiling = ("compile", self.dir / "bad.onnx", "--stateless", "-o", self.dir / "bad.gq")

        def changed(name, value, *index):
            def change(inputs):
                inputs[name] = inputs[name].copy()
                inputs[name][index] = value
            return change

        self.refused(changed(LAYOUT[1], 9, 0, 0), "row 0 of layout 0 lists 9", "rule:", "try:",
                     target=compiling)
        self.refused(changed(LAYOUT[1], -1, 0, 0), "lists -1", target=compiling)
        self.refused(changed(LAYOUT[0], 1, 0, 0), "block_row_indices[0][0] = 1", target=compiling)
        self.refused(changed(LAYOUT[0], 9999, 0, 1), "block_row_indices", target=compiling)

        def own_missing(inputs):
            rows, cols = (inputs[n].copy() for n in LAYOUT)
            last = rows[0, -1] - 1
            cols[0, last] = 0
            inputs[LAYOUT[1]] = cols

        self.refused(own_missing, "does not list itself", target=compiling)

    def test_sequences(self):
        """Sequences do not support layouts: the node is named."""
        onnx.save(SparseDecoder("sparse").model(), self.dir / "decoder.onnx")
        (self.dir / "ids.txt").write_text("1 2 3 4 5")
        result = gqac("score", self.dir / "decoder.onnx", "--ids", self.dir / "ids.txt")
        self.assertEqual(result.code, 3, str(result))
        for word in ("layout of blocks", "(com.microsoft.SparseAttention)", "rule:", "try:"):
            self.assertIn(word, result.err)

    def test_conventions(self):
        """The lengths are never those of the cache alone."""
        node = sparse(np.random.default_rng(5), random.Random(5), False)
        onnx.save(node.model(), self.dir / "node.onnx")
        result = gqac("compile", self.dir / "node.onnx", "--stateless", "--seqlens-k", "cached",
                      "-o", self.dir / "node.gq")
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("leave --seqlens-k out", result.err)

    def test_lengths(self):
        """More tokens than the capacity of the buffer or of the layout."""
        def too_many(inputs):
            for name in ("past_key", "past_value"):
                inputs[name] = inputs[name][:, :, :1]
        self.refused(too_many, "with 1 past rows")

        def few_blocks(inputs):
            inputs[LAYOUT[0]] = inputs[LAYOUT[0]][:, :2].copy()
        self.refused(few_blocks, "block mask")


if __name__ == "__main__":
    sys.exit(harness.main())
