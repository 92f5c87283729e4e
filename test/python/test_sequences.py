#!/usr/bin/env python3
"""Ops on sequences of tensors, which exist only during the import: results compared with ONNX
Runtime, and refused models.

    python test/python/test_sequences.py
"""

import sys
import unittest

import numpy as np
import onnx

import harness
from texts import Texts, ort

HEAD = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>\n'
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7
CONSTANTS = """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    two = Constant <value = int64 {2}> ()
    four = Constant <value = int64 {4}> ()
    last = Constant <value = int64 {-1}> ()
    few = Constant <value = int64[2] {1, 2}> ()
    pieces = Constant <value = int64[3] {1, 2, 3}> ()
"""
# name: (nodes, outputs)
TAKEN = {
    "parts of one size": ("""s = SplitToSequence <axis = -1> (x, two)
        a = SequenceAt (s, zero)
        b = SequenceAt (s, two)
        y = Sub (a, b)""", "float[A,B] y"),
    "the last part is shorter": ("""s = SplitToSequence <axis = 1> (x, four)
        y = SequenceAt (s, one)""", "float[A,B] y"),
    "parts of given lengths": ("""s = SplitToSequence <axis = 1> (x, pieces)
        a = SequenceAt (s, last)
        b = SequenceAt (s, zero)
        y = Mul (a, b)
        n = SequenceLength (s)""", "float[A,B] y, int64 n"),
    "one element each": ("""s = SplitToSequence <axis = 1, keepdims = 0> (x)
        t = SplitToSequence <axis = 1> (x)
        u = SequenceAt (s, last)
        v = SequenceAt (t, last)
        w = SequenceAt (t, one)""", "float[A] u, float[A,C] v, float[A,D] w"),
    "joined": ("""s = SequenceConstruct (x, x)
        y = ConcatFromSequence <axis = -1> (s)
        z = ConcatFromSequence <axis = -1, new_axis = 1> (s)""", "float[A,B] y, float[A,C,D] z"),
    "edited": ("""e = SequenceEmpty ()
        n = Neg (x)
        s = SequenceInsert (e, x)
        t = SequenceInsert (s, n)
        a = Abs (x)
        u = SequenceInsert (t, a, last)
        v = SequenceErase (u, zero)
        w = SequenceErase (v)
        c = Identity (u)
        y = ConcatFromSequence <axis = 0> (c)
        z = ConcatFromSequence <axis = 0> (v)
        l = SequenceLength (w)""", "float[A,B] y, float[C,B] z, int64 l"),
}
# torch.export without optimisation calls functions that take or return sequences
FUNCTIONS = """
<domain: "local", opset_import: ["" : 18]> split (a, size) => (parts) {
    parts = SplitToSequence <axis = 1> (a, size)
}
<domain: "local", opset_import: ["" : 18]> stack <at: int> (parts) => (r) {
    r = ConcatFromSequence <axis: int = @at, new_axis = 1> (parts)
}
"""
TAKEN["functions"] = ("""s = local.split (x, two)
    a = SequenceAt (s, zero)
    b = SequenceAt (s, one)
    t = SequenceConstruct (a, b)
    y = local.stack <at = 1> (t)""", "float[A,C,D] y", FUNCTIONS)
# name: (nodes, outputs, words of the message)
REFUSED = {
    "a position that a run computes": ("""s = SequenceConstruct (x, x)
        n = Size (x)
        i = Sub (n, n)
        y = SequenceAt (s, i)""", "float[A,B] y", ["SequenceAt: input 1 is not a constant"]),
    "a sequence as a result": ("""s = SplitToSequence <axis = 1> (x, pieces)
        y = Identity (s)""", "float[A,B] y", ["sequence: it is used where only tensors are"]),
    "a position that is not there": ("""s = SequenceConstruct (x, x)
        y = SequenceAt (s, two)""", "float[A,B] y", ["position 2 is out of range for a sequence of 2"]),
    "parts that do not add up": ("""s = SplitToSequence <axis = 1> (x, few)
        y = SequenceAt (s, zero)""", "float[A,B] y", ["the pieces add up to 3, the axis has 6"]),
    "how many parts": ("""s = SplitToSequence <axis = 0> (x, two)
        y = SequenceLength (s)""", "int64 y", ["number of tensors in the sequence is not known"]),
}


def text_of(nodes, outputs, functions=""):
    """A model of x."""
    return f"{HEAD}agraph (float[N,6] x) => ({outputs}) {{ {CONSTANTS} {nodes} }}\n{functions}"



class Sequences(Texts):
    """Each model with the same input."""

    # Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines
    # may lack it.
    @unittest.skipUnless(ort, "onnxruntime is not installed")
    def test_results(self):
        """The same values as ONNX Runtime."""
        for name, graph in TAKEN.items():
            with self.subTest(name):
                self.same(text_of(*graph), {"x": X})

    def test_refusals(self):
        """The message names the op or the sequence, and why it is not supported."""
        for name, (nodes, outputs, words) in REFUSED.items():
            with self.subTest(name):
                onnx.save(onnx.parser.parse_model(text_of(nodes, outputs)), self.dir / "bad.onnx")
                self.run_model(self.dir / "bad.onnx", {"x": X}, code=3, words=words)


if __name__ == "__main__":
    sys.exit(harness.main())
