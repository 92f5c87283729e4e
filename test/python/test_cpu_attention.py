#!/usr/bin/env python3
"""The attention kernel of the cpu target, tested through the command line.

    python test/python/test_cpu_attention.py

Whole models compute the same bits for every split, batch and number of threads and at every level
of this machine, and logits close to those of ref. ONNX Attention, which has masks that
GroupQueryAttention lacks, is run on both targets. --dump claim shows that the kernel claims the
nodes.
"""

import itertools
import sys

import numpy as np
from onnx import TensorProto, helper

import harness
from harness import MODELS, Case, gqac

LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
PLANS = ["--tokens", "150", "--splits", "random:3", "--batch", "2", "--threads", "1,2,3,5"]
TINY = harness.ROOT / "models" / "tiny-gqa"


class Models(Case):
    """Exported models through sequences."""

    def logits(self, folder, target, level=None):
        """Logits of the stored ids."""
        out = self.dir / "logits.npy"
        env = {"GQAC_CPU": level} if level else None
        done = gqac("score", folder, "--ids", folder / "ref" / "ids.txt", "--target", target,
                    "--logits", out, env=env)
        if level and done.code == 77:
            return None
        self.check(done, 0)
        return np.load(out)

    def test_equiv(self):
        """Any split, batch and number of threads."""
        for folder in [MODELS / name for name in ("llama", "llama-fp16", "gemma2", "qwen3")] + [
                TINY]:
            with self.subTest(folder.name):
                report = self.good("equiv", folder, "--target", "cpu", *PLANS, "--format", "json",
                                   seconds=400).json()
                self.assertEqual(report["differing"], 0, report)
                self.assertGreater(report["compared"], 0)

    def test_levels_and_ref(self):
        """Every level computes the same bytes, which are close to those of ref."""
        for name, limit in (("llama", 1e-5), ("gemma2", 1e-5), ("llama-fp16", 2e-2)):
            folder = MODELS / name
            ref = self.logits(folder, "ref")
            found = [x for x in (self.logits(folder, "cpu", level) for level in LEVELS)
                     if x is not None]
            for one in found:
                self.assertEqual(one.tobytes(), found[0].tobytes(), name)
            worst = np.abs(found[0] - ref).max() / np.abs(ref).max()
            self.assertLess(worst, limit, name)

    def test_claimed(self):
        """Attention is one kernel; its keys and values are not gathered."""
        text = self.good("compile", MODELS / "llama", "--target", "cpu", "--dump", "claim",
                         "--stop-after", "claim").out
        text = text if isinstance(text, str) else text.decode()
        self.assertIn('via "cpu.attention"', text)
        self.assertNotIn("softmax_sink", text)


class Onnx(Case):
    """ONNX Attention: op attend."""

    def node(self, q_heads, kv_heads, size, mask, causal):
        """A model of one node with inputs [B,heads,rows,size]."""
        names = ["q", "k", "v"] + (["mask"] if mask else [])
        node = helper.make_node("Attention", names, ["y"], is_causal=causal)
        value = helper.make_tensor_value_info
        inputs = [value("q", TensorProto.FLOAT, ["B", q_heads, "S", size]),
                  value("k", TensorProto.FLOAT, ["B", kv_heads, "T", size]),
                  value("v", TensorProto.FLOAT, ["B", kv_heads, "T", size])]
        if mask:
            kind = TensorProto.BOOL if mask == "bool" else TensorProto.FLOAT
            inputs.append(value("mask", kind, ["S", "T"]))
        graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)],
                                  ir_version=10)
        path = self.dir / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def test_masks(self):
        """cpu is close to ref for each kind of mask."""
        rng = np.random.default_rng(5)
        for mask, causal, size in itertools.product((None, "bool", "float"), (0, 1), (20, 64)):
            batch, kv_heads, group, rows, keys = 2, 2, 3, 37, 141
            model = self.node(kv_heads * group, kv_heads, size, mask, causal)
            feeds = {name: rng.standard_normal((batch, heads, n, size)).astype(np.float32)
                     for name, heads, n in (("q", kv_heads * group, rows), ("k", kv_heads, keys),
                                            ("v", kv_heads, keys))}
            if mask:
                seen = rng.random((rows, keys)) < 0.7
                seen[:, 0] = True
                seen[3] = False
                feeds["mask"] = seen if mask == "bool" else np.where(
                    seen, rng.standard_normal((rows, keys)), -np.inf).astype(np.float32)
            flags = []
            for name, array in feeds.items():
                np.save(self.dir / f"{name}.npy", array)
                flags += ["--input", f"{name}={self.dir / name}.npy"]
            found = {}
            for target in ("ref", "cpu"):
                out = self.dir / target
                self.good("run", model, *flags, "--target", target, "--output", out, "--threads",
                          "3")
                found[target] = np.load(out / "y.npy")
            self.close(found["cpu"], found["ref"], 1e-5, f"{mask} {causal} {size}")


if __name__ == "__main__":
    sys.exit(harness.main())
