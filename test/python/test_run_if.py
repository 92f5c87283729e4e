#!/usr/bin/env python3
"""An `If` whose branch returns a value of the outer graph has the correct results, and the time for
many of them is proportional to their number.

    python test/python/test_run_if.py
"""

import resource
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper, numpy_helper

import harness
from harness import Case

X = np.array([1.5, -2.0, 0.0, 7.25], np.float32)
HEAD = "graph @g(%c: bool[], %x: f32[4]) {\n  %a = Neg %x : f32[4]\n"


def branch(name, body, indent="  "):
    """A nested graph from its lines."""
    lines = "".join(f"{indent}  {line}\n" for line in body)
    return f"graph @{name}() {{\n{lines}{indent}}}"


def choice(then, other):
    """The If with two bodies that computes %y."""
    return (f"  %y = If %c {{then_branch={branch('t', then)}, "
            f"else_branch={branch('e', other)}}} : f32[4]\n")


ABS = ("%b = Abs %x : f32[4]", "return %b")


class Outer(Case):
    """Each text runs with both conditions."""

    def command(self, text, taken):
        """The arguments of one run, whose outputs go to the folder out."""
        path = self.dir / "m.gq"
        path.write_text(text)
        np.save(self.dir / "c.npy", np.array(taken))
        np.save(self.dir / "x.npy", X)
        return ("run", path, "--input", f"c={self.dir / 'c.npy'}", "--input",
                f"x={self.dir / 'x.npy'}", "--output", self.dir / "out")

    def outputs(self, text, taken):
        """{name: values} of one run."""
        self.good(*self.command(text, taken))
        return {p.stem: np.load(p) for p in (self.dir / "out").glob("*.npy")}

    def both(self, text, expected):
        """expected[taken] is {name: values}."""
        for taken, values in ((True, expected[0]), (False, expected[1])):
            got = self.outputs(text, taken)
            self.assertEqual(set(got), set(values))
            for name, value in values.items():
                self.assertTrue(np.array_equal(got[name], value), (name, taken, got[name]))

    def test_value_of_a_node(self):
        """The result of another node, which is also an output."""
        text = HEAD + choice(("return %a",), ABS) + '  return %a as "a", %y as "y"\n}\n'
        self.both(text, ({"a": -X, "y": -X}, {"a": -X, "y": np.abs(X)}))

    def test_used_afterwards(self):
        """The result is used after the last other use of the outer value."""
        text = (HEAD + choice(("return %a",), ABS) + "  %p = Abs %x : f32[4]\n"
                "  %q = Exp %p : f32[4]\n  %z = Neg %y : f32[4]\n"
                '  return %q as "q", %z as "z"\n}\n')
        q = self.outputs(text, True)["q"]
        self.both(text, ({"q": q, "z": X}, {"q": q, "z": -np.abs(X)}))

    def test_graph_input(self):
        """An input of the graph."""
        text = HEAD + choice(("return %x",), ABS) + '  return %a as "a", %y as "y"\n}\n'
        self.both(text, ({"a": -X, "y": X}, {"a": -X, "y": np.abs(X)}))

    def test_constant(self):
        """A constant of the graph."""
        k = np.array([4, 3, 2, 1], np.float32)
        text = ("graph @g(%c: bool[], %x: f32[4]) {\n  const %k: f32[4] = [4, 3, 2, 1]\n"
                + choice(("return %k",), ABS) + '  return %y as "y"\n}\n')
        self.both(text, ({"y": k}, {"y": np.abs(X)}))

    def test_both_branches(self):
        """Both return only outer values."""
        text = HEAD + choice(("return %a",), ("return %x",)) + '  return %y as "y"\n}\n'
        self.both(text, ({"y": -X}, {"y": X}))

    def test_nested(self):
        """Values from two levels further out."""
        inner = ("%i = If %c {then_branch=" + branch("t2", ("return %a",), "    ")
                 + ", else_branch=" + branch("e2", ("%d = Abs %x : f32[4]", "return %d"),
                          "    ") + "} : f32[4]", "return %i")
        text = HEAD + choice(inner, ABS) + '  return %a as "a", %y as "y"\n}\n'
        self.both(text, ({"a": -X, "y": -X}, {"a": -X, "y": np.abs(X)}))

    def test_twice(self):
        """Two Ifs with the same outer value, one with the condition negated."""
        second = choice(("return %a",), ABS).replace("%y =", "%z =").replace("@t", "@t3").replace(
            "@e", "@e3").replace("%b", "%d")
        text = (HEAD + choice(("return %a",), ABS) + second + "  %n = Neg %z : f32[4]\n"
                '  return %y as "y", %n as "n"\n}\n')
        self.both(text, ({"y": -X, "n": X}, {"y": np.abs(X), "n": -np.abs(X)}))

    def test_wrong_branch(self):
        """An invalid branch fails when it is taken; otherwise the other one runs, however deep the
        invalid node is."""
        wrong, also = ((f"const %k{n}: i64[2] = [3, 3]", f"%w{n} = Reshape %x, %k{n} : f32[3, 3]",
                        f"%u{n} = Abs %w{n} : f32[3, 3]", f"return %u{n}") for n in (1, 2))
        for body in (wrong, ("%i = If %c {then_branch=" + branch("t2", wrong, "    ")
                             + ", else_branch=" + branch("e2", also, "    ") + "} : f32[3, 3]",
                              "return %i")):
            text = HEAD + choice(body, ABS) + '  return %a as "a", %y as "y"\n}\n'
            got = self.outputs(text, False)
            self.assertTrue(np.array_equal(got["y"], np.abs(X)), got)
            failed = self.check(harness.gqac(*self.command(text, True)), 4)
            self.assertIn("Reshape", failed.err)

    def test_wrong_outside(self):
        """The same node outside a branch is refused before anything runs."""
        text = (HEAD.replace("\n", "\n  const %k: i64[2] = [3, 3]\n", 1)
                + '  %w = Reshape %x, %k : f32[3, 3]\n  return %w as "w"\n}\n')
        failed = self.check(harness.gqac(*self.command(text, True)), 3)
        self.assertIn("Reshape", failed.err)


class Many(Case):
    """A sequence model with many Ifs that depend on data."""

    def decoder(self, count, longer):
        """One layer, and these Ifs; `longer`: the first one depends on the total length."""
        def info(name, shape=None, dtype=T.FLOAT):
            return helper.make_tensor_value_info(name, dtype, shape)

        def node(op, inputs, outputs, **attrs):
            return helper.make_node(op, inputs.split(), outputs.split(), **attrs)

        nodes = [node("Gather", "embed input_ids", "x"), node("Shape", "attention_mask", "shape"),
                 node("Gather", "shape one", "columns"), node("Cast", "columns", "total", to=T.INT32),
                 node("ReduceSum", "attention_mask axis", "keys", keepdims=0),
                 node("Sub", "keys one", "before"), node("Cast", "before", "k", to=T.INT32),
                 helper.make_node("GroupQueryAttention", "x x x past_key past_value k total".split(),
                                  ["a", "present_key", "present_value"], domain="com.microsoft",
                                  num_heads=1, kv_num_heads=1),
                 node("ReduceMax", "a", "most", keepdims=0), node("Greater", "most zero", "data"),
                 node("Greater", "total limit", "long")]
        for i in range(count):
            branches = {f"{name}_branch": helper.make_graph([], name, [], [info(value)])
                        for name, value in (("then", f"y{i}" if i else "a"), ("else", "x"))}
            nodes.append(node("If", "data" if i or not longer else "long", f"y{i + 1}", **branches))
        nodes.append(node("MatMul", f"y{count} head", "logits"))
        ones = {"embed": np.ones((16, 8)), "head": np.ones((8, 16)), "zero": np.zeros(())}
        graph = helper.make_graph(
            nodes, "g", [info("input_ids", ["B", "S"], T.INT64),
                         info("attention_mask", ["B", "T"], T.INT64)]
            + [info(f"past_{kind}", ["B", 1, "P", 8]) for kind in ("key", "value")],
            [info("logits"), info("present_key"), info("present_value")],
            [numpy_helper.from_array(a.astype(np.float32), name) for name, a in ones.items()]
            + [numpy_helper.from_array(a, name) for name, a in (
                ("limit", np.int32(50)), ("one", np.int64(1)), ("axis", np.array([1])))])
        path = self.dir / "many.onnx"
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), path)
        return path

    def seconds(self, path):
        """CPU time of a score."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.good("score", path, "--ids", harness.write_ids(self.dir / "ids.txt", [1, 2, 3]))
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def test_linear(self):
        """If one If depends on the total length, gqac searches for others, but not with a walk for
        each."""
        without = self.seconds(self.decoder(12_000, False))
        self.assertLess(self.seconds(self.decoder(12_000, True)), 2 * without)


if __name__ == "__main__":
    sys.exit(harness.main())
