#!/usr/bin/env python3
"""CausalConvWithState and LinearAttention: the end of a call changes no byte.

    python test/python/test_recurrent_state.py

One run over all tokens is compared with runs over chunks, each of which takes the state of the
previous one; other batch rows, 16-bit types, both targets.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import harness
from harness import Case, gqac

SEED, TOKENS, BATCH = 90210, 13, 2
CHUNKS = ([13], [1] * 13, [5, 8], [1, 11, 1], [4, 4, 5])


class RecurrentState(Case):
    """Splits of one sequence."""

    def outputs(self, path, feeds, target):
        """Arrays by name."""
        inputs = []
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
            inputs += ["--input", f"{name}={self.dir / name}.npy"]
        self.good("run", path, *inputs, "-o", self.dir / "out", "--target", target)
        return {p.stem: np.load(p) for p in (self.dir / "out").glob("*.npy")}

    def save(self, node, feeds, kind):
        """A model with that node."""
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(n, kind, None) for n in feeds],
            [helper.make_tensor_value_info(n, kind, None) for n in node.output])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)])
        made.ir_version = 10
        onnx.save(made, self.dir / "model.onnx")
        return self.dir / "model.onnx"

    def check_splits(self, node, feeds, axis, kind):
        """Outputs and last state equal those of the whole, for any chunks."""
        path = self.save(node, feeds, kind)
        steady = [n for n in feeds if n in ("weight", "bias")]
        for target in ("cpu", "ref"):
            whole = self.outputs(path, feeds, target)
            self.assertTrue(np.isfinite(whole["y"].astype(np.float32)).all())
            for chunks in CHUNKS:
                state, at, parts = feeds["past"], 0, []
                for n in chunks:
                    part = {name: value if name in steady else
                            np.take(value, range(at, at + n), axis)
                            for name, value in feeds.items() if name != "past"}
                    got = self.outputs(path, part | {"past": state}, target)
                    state, at = got["present"], at + n
                    parts.append(got["y"])
                self.assertEqual(state.tobytes(), whole["present"].tobytes(), f"{chunks}")
                y = np.ascontiguousarray(np.concatenate(parts, axis))
                self.assertEqual(y.tobytes(), whole["y"].tobytes(), f"{target} {chunks}")
            last = {name: value if name in steady else value[-1:] for name, value in feeds.items()}
            alone = self.outputs(path, last, target)
            self.assertEqual(alone["y"].tobytes(), whole["y"][-1:].tobytes(), "alone")

    def test_causal_conv(self):
        """A kernel of four taps."""
        for kind, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)):
            rng = np.random.default_rng(SEED)
            feeds = {"x": rng.standard_normal((BATCH, 6, TOKENS)),
                     "weight": rng.standard_normal((6, 1, 4)), "bias": rng.standard_normal(6),
                     "past": rng.standard_normal((BATCH, 6, 3))}
            node = helper.make_node("CausalConvWithState", list(feeds), ["y", "present"],
                                    activation="silu")
            feeds = {n: v.astype(dtype) for n, v in feeds.items()}
            self.check_splits(node, feeds, 2, kind)

    def test_linear_attention(self):
        """Every rule; a 16-bit state is rounded after every token."""
        for rule in ("linear", "gated", "delta", "gated_delta"):
            for kind, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)):
                rng = np.random.default_rng(SEED + 1)
                feeds = {"q": rng.standard_normal((BATCH, TOKENS, 4 * 8)),
                         "k": rng.standard_normal((BATCH, TOKENS, 2 * 8)) / 4,
                         "v": rng.standard_normal((BATCH, TOKENS, 2 * 5)),
                         "past": rng.standard_normal((BATCH, 2, 8, 5))}
                names = list(feeds) + ["decay" if "gated" in rule else "",
                                       "beta" if "delta" in rule else ""]
                if "gated" in rule:
                    feeds["decay"] = -rng.random((BATCH, TOKENS, 2))
                if "delta" in rule:
                    feeds["beta"] = rng.random((BATCH, TOKENS, 2))
                node = helper.make_node("LinearAttention", names, ["y", "present"], q_num_heads=4,
                                        kv_num_heads=2, update_rule=rule)
                feeds = {n: v.astype(dtype) for n, v in feeds.items()}
                with self.subTest(f"{rule} {dtype.__name__}"):
                    self.check_splits(node, feeds, 1, kind)

    def test_shared_keys(self):
        """Keys shared by several heads of values are equivalent to repeated keys."""
        rng = np.random.default_rng(SEED + 2)
        feeds = {"q": rng.standard_normal((BATCH, TOKENS, 2 * 8)),
                 "k": rng.standard_normal((BATCH, TOKENS, 2 * 8)) / 4,
                 "v": rng.standard_normal((BATCH, TOKENS, 6 * 37))}
        node = helper.make_node("LinearAttention", list(feeds), ["y", "present"], q_num_heads=2,
                                kv_num_heads=6, update_rule="linear")
        feeds = {n: v.astype(np.float32) for n, v in feeds.items()}
        shared = self.outputs(self.save(node, feeds, TensorProto.FLOAT), feeds, "cpu")
        repeated = np.repeat(feeds["k"].reshape(BATCH, TOKENS, 2, 8), 3, 2)
        feeds["k"] = repeated.reshape(BATCH, TOKENS, -1)
        whole = self.outputs(self.save(node, feeds, TensorProto.FLOAT), feeds, "cpu")
        for name in ("y", "present"):
            self.assertEqual(shared[name].tobytes(), whole[name].tobytes(), name)
        feeds["k"] = feeds["k"][..., :24]
        self.save(node, feeds, TensorProto.FLOAT)
        inputs = []
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
            inputs += ["--input", f"{name}={self.dir / name}.npy"]
        self.good("run", self.dir / "model.onnx", *inputs, "-o", self.dir / "out")
        np.save(self.dir / "k.npy", np.tile(feeds["k"], 2)[..., :32])
        self.check(gqac("run", self.dir / "model.onnx", *inputs, "-o", self.dir / "out"), 4,
                   "key has 32", "LinearAttention")


if __name__ == "__main__":
    sys.exit(harness.main())
