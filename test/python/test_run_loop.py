#!/usr/bin/env python3
"""Loop and Scan: states, stacked results, values of outer graphs, and refused models.

    python test/python/test_run_loop.py
"""

import sys
import unittest

import numpy as np
import onnx

import harness
from harness import gqac
from texts import Texts, ort

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
# x + 1 and 2 x alternately, as long as the sum is small: all values are stacked
WHILE = HEAD + """agraph (float[N] x, int64 trips, float bound) => (float[N] last, float[T,N] all) {
    go = Constant <value = bool {1}> ()
    last, all = Loop (trips, go, x) <body = step (int64 i, bool c, float[N] s)
        => (bool next, float[N] t, float[N] row) {
        one = Constant <value = float {1.0}> ()
        two = Constant <value = int64 {2}> ()
        zero = Constant <value = int64 {0}> ()
        turn = Mod (i, two)
        odd = Equal (turn, zero)
        more = Add (s, one)
        twice = Add (s, s)
        t = Where (odd, more, twice)
        row = Sub (t, x)
        sum = ReduceSum <keepdims = 0> (t)
        next = Less (sum, bound)
    }>
}"""
# states are exchanged: the copy of one must not be overwritten by the other
SWAP = HEAD + """agraph (float[2] x, float[2] y, int64 trips) => (float[2] u, float[2] v) {
    u, v = Loop (trips, , x, y) <body = step (int64 i, bool c, float[2] a, float[2] b)
        => (bool c2, float[2] b2, float[2] a2) {
        c2 = Identity (c)
        b2 = Identity (b)
        a2 = Identity (a)
    }>
}"""
# rows of a rank that is known only at run time
OPEN = HEAD + """agraph (int64[R] shape, int64 trips) => (float all) {
    start = Constant <value = float {0.0}> ()
    last, all = Loop (trips, , start) <body = step (int64 i, bool c, float s)
        => (bool d, float t, float row) {
        d = Identity (c)
        one = Constant <value = float {1.0}> ()
        t = Add (s, one)
        row = Expand (t, shape)
    }>
}"""
# 1, 2, 4, ... elements: the state grows, and so would the rows
GROW = HEAD + """agraph (float[N] x, int64 trips) => (float[M] y{rows}) {{
    y{more} = Loop (trips, , x) <body = step (int64 i, bool c, float[K] s)
        => (bool c2, float[L] t{rows_in}) {{
        c2 = Identity (c)
        t = Concat <axis = 0> (s, s)
        {row}
    }}>
}}"""
# running products along axis 1, from the end, with results stacked along axis 1 from the end
SCAN = HEAD + """agraph (float[B] s, float[B,T] x) => (float[B] last, float[B,T] all) {
    last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
        scan_output_axes = [1], scan_output_directions = [1], body = step (float[B] p, float[B] e)
        => (float[B] q, float[B] row) {
        q = Mul (p, e)
        row = Identity (q)
    }> (s, x)
}"""


class Loops(Texts):
    """Runs models from text."""

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_while(self):
        """Ends because of its condition, because of its count, and before its first iteration."""
        x = np.array([0.5, -1.0, 2.0], np.float32)
        for trips, bound in ((9, 20.0), (3, 1e9), (1, 0.0), (0, 5.0), (-4, 5.0)):
            self.same(WHILE, {"x": x, "trips": np.int64(trips), "bound": np.float32(bound)})

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_never_ran(self):
        """No iterations, and rows of unknown rank: an empty list."""
        for trips in (0, 3):
            self.same(OPEN, {"shape": np.array([2, 1]), "trips": np.int64(trips)})

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_states_change_places(self):
        """A result may be another input of the body."""
        x, y = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
        for trips in (0, 1, 2, 5):
            self.same(SWAP, {"x": x, "y": y, "trips": np.int64(trips)})

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_state_grows(self):
        """Another shape in every iteration."""
        text = GROW.format(rows="", more="", rows_in="", row="")
        self.same(text, {"x": np.arange(3, dtype=np.float32), "trips": np.int64(6)})

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_scan(self):
        """Backwards, along an inner axis."""
        x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        self.same(SCAN, {"s": np.array([1, -1], np.float32), "x": x})
        self.same(SCAN, {"s": np.array([1, -1], np.float32), "x": x[:, :1]})

    def test_rows_must_agree(self):
        """Results whose shapes differ cannot be stacked."""
        path = self.save(GROW.format(rows=", float[T,R] all", more=", all",
                                     rows_in=", float[R] row", row="row = Identity (t)"))
        feeds = {"x": np.zeros(2, np.float32)}
        self.run_model(path, feeds | {"trips": np.int64(2)}, code=4, words=("Loop", "shape"))
        self.run_model(path, feeds | {"trips": np.int64(1)})

    def test_endless(self):
        """An infinite loop ends nevertheless."""
        text = SWAP.replace("(trips, , x, y)", "(, , x, y)").replace(", int64 trips", "")
        feeds = {n: np.zeros(2, np.float32) for n in "xy"}
        self.run_model(self.save(text), feeds, code=3, words=("Loop", "iterations"))

    def test_endless_within(self):
        """Nested loops share one limit."""
        body = "t0 = Identity (s0)"
        for depth in (0, 1, 2):
            outer = f"s{depth + 1}" if depth < 2 else "x"
            made = f"t{depth + 1}" if depth < 2 else "y"
            body = f"""{made} = Loop (most, , {outer}) <body = step{depth} (int64 i{depth},
                bool c{depth}, float s{depth}) => (bool d{depth}, float t{depth}) {{
                d{depth} = Identity (c{depth})
                {body}
            }}>"""
        text = HEAD + f"""agraph (float x, int64 most) => (float y) {{
            {body}
        }}"""
        path = self.save(text)
        feeds = {"x": np.float32(1)}
        self.run_model(path, feeds | {"most": np.int64(20)})
        self.run_model(path, feeds | {"most": np.int64(1 << 20)}, code=3,
                       words=("Loop", "iterations", "rule:", "try:"))

    def test_other_than_declared(self):
        """A body was compiled for its declared types: inputs of other types are refused in any
        iteration."""
        sizes = """go = Identity (c)
            n = Shape (s)
            f = Cast <to = 1> (n)
            t = Add (s, f)"""
        doubled = "go = Identity (c)\n t = Concat <axis = 0> (s, s)"
        for kind, work, trips, words in (
                ("float[8]", sizes, 1, ("8 elements along axis 0, got 4",)),
                ("float[8,4]", doubled, 1, ("rank 2, got rank 1",)),
                ("float[4]", doubled, 2, ("4 elements along axis 0, got 8",))):
            with self.subTest(kind):
                made = onnx.parser.parse_model(HEAD + f"""agraph (float[4] x, int64 trips)
                    => (float[N] y) {{
                    y = Loop (trips, , x) <body = step (int64 i, bool c, {kind} s)
                        => (bool go, {kind} t) {{
                        {work}
                    }}>
                }}""")
                onnx.save(made, self.dir / "model.onnx")
                self.run_model(self.dir / "model.onnx", {"x": np.zeros(4, np.float32),
                                                         "trips": np.int64(trips)},
                               code=4, words=("Loop", "'s'", "rule:", "try:") + words)

    def test_scan_other_than_declared(self):
        """A slice with another length than declared in the body."""
        text = SCAN.replace("float[B] p, float[B] e", "float[B] p, float[3] e")
        self.run_model(self.save(text), {"s": np.ones(2, np.float32),
                                         "x": np.ones((2, 3), np.float32)},
                       code=4, words=("Scan", "3 elements along axis 0, got 2"))

    def test_scalars_of_rank_one(self):
        """A body may declare its number and its condition as tensors of one element."""
        text = SWAP.replace("int64 i, bool c", "int64[1] i, bool[1] c").replace("bool c2",
                                                                                "bool[1] c2")
        x = np.array([1, 2], np.float32)
        got = self.run_model(self.save(text), {"x": x, "y": x + 2, "trips": np.int64(3)})
        np.testing.assert_array_equal(got["u"], x + 2)

    def test_lengths_differ(self):
        """Two scan inputs of different lengths."""
        text = HEAD + """agraph (float[A] x, float[B] y) => (float[C] z) {
            z = Scan <num_scan_inputs = 2, body = step (float a, float b) => (float c) {
                c = Add (a, b)
            }> (x, y)
        }"""
        feeds = {"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)}
        self.run_model(self.save(text), feeds, code=4, words=("Scan", "lengths 2 and 3"))

    def test_axis_of_64_bits(self):
        """An axis whose low half is a valid axis: refused before it runs."""
        path = self.save(SCAN.replace("scan_input_axes = [1]", f"scan_input_axes = [{1 << 32}]"))
        self.check(gqac("inspect", path), 3, "Scan", f"axis {1 << 32} is out of range")

    def test_wrong_body(self):
        """The body has other numbers of inputs and outputs than the node."""
        made = onnx.parser.parse_model(SWAP)
        del made.graph.node[0].attribute[0].g.output[2]
        onnx.save(made, self.dir / "bad.onnx")
        self.run_model(self.dir / "bad.onnx", {}, code=3, words=("Loop", "results"))

    def test_mixes(self):
        """Each iteration may depend on the previous ones: rows are reported as mixed."""
        path = self.save(SCAN)
        found = self.good("inspect", path, "--invariance")
        self.assertIn("Scan", found.out)


if __name__ == "__main__":
    sys.exit(harness.main())
