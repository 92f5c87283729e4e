#!/usr/bin/env python3
"""Products with constant weights on cpu: packed once, with the bits of ref.

MatMul and Gemm in every form that is packed, and in those that are not, return the same bytes on
cpu and on ref; artefacts contain the packed form; in exported ONNX weights are plain again; packed
weights of the wrong shape are refused.

    python test/python/test_cpu_linear.py        (needs onnx, onnxruntime, numpy)
"""

import re
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import Case

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, None)}


def to_bf16(x):
    """float32 to the bits of bf16, rounded to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def tensor(name, x, kind):
    """A constant of that type."""
    if kind == "bf16":
        return helper.make_tensor(name, TensorProto.BFLOAT16, x.shape, to_bf16(x).tobytes(),
                                  raw=True)
    return numpy_helper.from_array(x.astype(TYPES[kind][1]), name)


class Linear(Case):
    """gqac run --target cpu against --target ref"""

    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(11)

    def numbers(self, *shape):
        """Normally distributed numbers."""
        return self.random.standard_normal(shape).astype(np.float32)

    def save(self, nodes, inputs, outputs, constants, kind="f32", name="m.onnx"):
        """A model file; gqac infers the shapes of outputs."""
        code = TYPES[kind][0]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info(n, code, s) for n, s in inputs],
            [helper.make_tensor_value_info(n, code, s) for n, s in outputs],
            [tensor(n, x, kind) for n, x in constants.items()])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        made.ir_version = 10
        path = self.dir / name
        onnx.save(made, path)
        return path

    def feed(self, x, kind, name="x"):
        """An .npy file."""
        path = self.dir / f"{name}.npy"
        np.save(path, to_bf16(x).view("V2") if kind == "bf16" else x.astype(TYPES[kind][1]))
        return f"{name}={path}"

    def outputs(self, path, feeds, target, *more, **settings):
        """The bytes of every output file, by name."""
        out = self.dir / f"out-{target}"
        out.mkdir(exist_ok=True)
        for old in out.iterdir():
            old.unlink()
        args = [a for f in feeds for a in ("--input", f)]
        self.good("run", path, *args, "--output", out, "--target", target, *more, **settings)
        return {p.name: p.read_bytes() for p in sorted(out.iterdir())}

    def same(self, path, feeds, *more, **settings):
        """cpu returns the bytes of ref."""
        ref = self.outputs(path, feeds, "ref")
        self.assertTrue(ref)
        self.assertEqual(self.outputs(path, feeds, "cpu", *more, **settings), ref)

    def dump(self, path, target="cpu"):
        """The graph after `pack`."""
        return self.good("compile", path, "--stop-after", "pack", "--dump", "pack", "--target",
                         target).out

    def packed(self, text):
        """Packed weights of a dump, and products with them."""
        return len(re.findall(r": \w+\[\d+,\d+,64\]", text)), text.count("= linear ")

    def test_bits(self):
        """All numbers of rows around the tiles, K around pieces, N with partial panels, special
        values."""
        for kind in TYPES:
            for k, n in ((511, 130), (512, 64), (513, 77), (1030, 33)):
                w = self.numbers(k, n)
                w[0, :4] = np.array([np.inf, np.nan, 1e-40, -0.0], np.float32)
                path = self.save([helper.make_node("MatMul", ["x", "w"], ["y"])],
                                 [("x", ["B", "S", k])], [("y", ["B", "S", n])], {"w": w}, kind)
                self.assertEqual(self.packed(self.dump(path)), (1, 1))
                for rows in ((1, 2, 3, 5, 6, 7, 13, 40) if k < 600 else (1, 9)):
                    x = self.numbers(1, rows, k)
                    x[0, 0, 1] = -1e-41
                    self.same(path, [self.feed(x, kind)], "--threads", 1 + rows % 3)
        for level in ("scalar", "avx2"):
            if level == "scalar" or "avx2" in open("/proc/cpuinfo", encoding="ascii").read():
                self.same(path, [self.feed(x, kind)], env={"GQAC_CPU": level})

    def test_units(self):
        """More blocks of rows than panels, and the reverse, with any number of threads."""
        k = 24
        for n in (65, 700, 2100):
            path = self.save([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["S", k])],
                             [("y", ["S", n])], {"w": self.numbers(k, n)})
            for rows in (17, 500):
                feeds = [self.feed(self.numbers(rows, k), "f32")]
                ref = self.outputs(path, feeds, "ref")
                for threads in (1, 2, 5):
                    self.assertEqual(self.outputs(path, feeds, "cpu", "--threads", threads), ref)

    def test_run_time(self):
        """MatMul of two inputs: batches that broadcast in either direction or are joined, few rows
        and many, K around pieces, N with partial panels, empty operands; the same on every
        level."""
        levels = ["scalar"] + ["avx2"] * ("avx2" in open("/proc/cpuinfo", encoding="ascii").read())
        shapes = (((7, 40), (40, 70)), ((8, 40), (40, 70)), ((100, 513), (513, 64)),
                  ((2, 3, 50, 33), (2, 3, 33, 65)), ((2, 1, 50, 33), (3, 33, 65)),
                  ((3, 9, 33), (33, 600)), ((2, 3, 33), (1, 33, 600)), ((5, 33), (2, 2, 33, 130)),
                  ((1, 4, 9, 20), (2, 1, 20, 1)), ((3, 9, 0), (0, 5)), ((0, 9, 4), (4, 5)),
                  ((16, 4), (4, 0)))
        for kind in TYPES:
            path = None
            for turn, (a, b) in enumerate(shapes):
                dims = [[f"{n}{i}" for i in range(len(s))] for n, s in (("a", a), ("b", b))]
                rank = max(len(a), len(b))
                path = self.save([helper.make_node("MatMul", ["x", "w"], ["y"])],
                                 [("x", dims[0]), ("w", dims[1])],
                                 [("y", [f"y{i}" for i in range(rank)])], {}, kind)
                x, w = self.numbers(*a), self.numbers(*b)
                if x.size and w.size:
                    x.flat[-1], w.flat[-1], w.flat[w.size // 2] = np.inf, np.nan, -1e-40
                feeds = [self.feed(x, kind), self.feed(w, kind, "w")]
                self.same(path, feeds, "--threads", 1 + turn % 3,
                          env={"GQAC_CPU": levels[turn % len(levels)]})
            self.assertIn('via "cpu.matmul"', self.good(
                "compile", path, "--stateless", "--dump", "claim").out)

    def test_forms(self):
        """Gemm with its switches, a bias after MatMul, shared and transposed weights."""
        k, n = 96, 70
        w, b = self.numbers(k, n), self.numbers(n)
        node = helper.make_node
        forms = {  # nodes, constants, (packed weights, products)
            "gemm": ([node("Gemm", ["x", "w", "b"], ["y"])], {"w": w, "b": b}, (1, 1)),
            "gemm row": ([node("Gemm", ["x", "w", "b"], ["y"])], {"w": w, "b": b[None]}, (1, 1)),
            "gemm t": ([node("Gemm", ["x", "w"], ["y"], transB=1)], {"w": w.T.copy()}, (1, 1)),
            "alpha": ([node("Gemm", ["x", "w"], ["y"], alpha=0.5)], {"w": w}, (0, 0)),
            "beta": ([node("Gemm", ["x", "w", "b"], ["y"], beta=2.0)], {"w": w, "b": b}, (0, 0)),
            "scalar c": ([node("Gemm", ["x", "w", "b"], ["y"])], {"w": w, "b": b[:1]}, (0, 0)),
            "bias": ([node("MatMul", ["x", "w"], ["t"]), node("Add", ["b", "t"], ["y"])],
                     {"w": w, "b": b}, (1, 1)),
            "bias of twice": ([node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["u"]),
                               node("Add", ["t", "u"], ["y"])], {"w": w, "b": b}, (1, 1)),
            "shared": ([node("MatMul", ["x", "w"], ["t"]), node("Tanh", ["x"], ["z"]),
                        node("Gemm", ["z", "w", "b"], ["u"]), node("Add", ["t", "u"], ["y"])],
                       {"w": w, "b": b}, (1, 2)),
            "both ways": ([node("MatMul", ["x", "w"], ["t"]),
                           node("Gemm", ["t", "w"], ["u"], transB=1),
                           node("MatMul", ["u", "w"], ["y"])], {"w": w}, (2, 3)),
        }
        for kind in TYPES:
            for name, (nodes, constants, wanted) in forms.items():
                with self.subTest(kind=kind, form=name):
                    path = self.save(nodes, [("x", ["S", k])], [("y", ["S", n])], constants, kind)
                    self.assertEqual(self.packed(self.dump(path)), wanted)
                    for rows in (1, 11):
                        self.same(path, [self.feed(self.numbers(rows, k), kind)])

    def test_infinite_bias(self):
        """It is left to Add, whose NaN have another payload on cpu."""
        w, b = self.numbers(8, 64), self.numbers(64)
        w[0, 0], b[0] = np.inf, -np.inf
        path = self.save([helper.make_node("MatMul", ["x", "w"], ["t"]),
                          helper.make_node("Add", ["t", "b"], ["y"])],
                         [("x", ["S", 8])], [("y", ["S", 64])], {"w": w, "b": b})
        self.assertIn(" Add ", self.dump(path))
        feeds = [self.feed(np.abs(self.numbers(3, 8)), "f32")]
        results = [np.frombuffer(self.outputs(path, feeds, target)["y.npy"][128:], np.float32)
                   for target in ("ref", "cpu")]
        self.assertTrue(np.isnan(results[0]).any())
        np.testing.assert_array_equal(*results)

    def test_large_transposed(self):
        """A transposed weight too large to be folded: an embedding that is also the head."""
        k, n = 1024, 17000
        w = self.numbers(n, k)
        path = self.save([helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
                          helper.make_node("MatMul", ["x", "t"], ["y"])],
                         [("x", ["S", k])], [("y", ["S", n])], {"w": w})
        text = self.dump(path)
        self.assertEqual(self.packed(text), (1, 1))
        self.assertNotIn("Transpose", text)
        self.same(path, [self.feed(self.numbers(3, k), "f32")])

    def test_branch(self):
        """A product in a branch of If, with a weight of the outer graph."""
        k, n = 64, 80
        value = helper.make_tensor_value_info
        then = helper.make_graph([helper.make_node("MatMul", ["z", "w"], ["p"])], "then", [],
                                 [value("p", TensorProto.FLOAT, ["S", n])])
        other = helper.make_graph([helper.make_node("MatMul", ["x", "v"], ["q"])], "else", [],
                                  [value("q", TensorProto.FLOAT, ["S", n])])
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Tanh", ["x"], ["z"]),
             helper.make_node("If", ["c"], ["u"], then_branch=then, else_branch=other),
             helper.make_node("Add", ["t", "u"], ["y"])], "g",
            [value("x", TensorProto.FLOAT, ["S", k]), value("c", TensorProto.BOOL, [])],
            [value("y", TensorProto.FLOAT, ["S", n])],
            [tensor("w", self.numbers(k, n), "f32"), tensor("v", self.numbers(k, n), "f32")])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        made.ir_version = 10
        onnx.save(made, self.dir / "if.onnx")
        self.assertEqual(self.packed(self.dump(self.dir / "if.onnx")), (2, 3))
        for choice in (True, False):
            np.save(self.dir / "c.npy", np.array(choice))
            self.same(self.dir / "if.onnx", [self.feed(self.numbers(5, k), "f32"),
                                             f"c={self.dir / 'c.npy'}"])

    def test_export(self):
        """In exported ONNX a packed weight is plain again, with the same bits."""
        k, n = 130, 200
        for kind in TYPES:
            constants = {"w": self.numbers(k, n), "b": self.numbers(n)}
            path = self.save([helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
                             [("x", ["S", k])], [("y", ["S", n])], constants, kind)
            feeds = [self.feed(self.numbers(7, k), kind)]
            packed, plain = self.dir / "packed.gq", self.dir / "plain.onnx"
            self.good("compile", path, "-o", packed, "--target", "cpu", "--stop-after", "pack",
                      "--emit", "text")
            self.assertIn("= linear ", packed.read_text())
            self.good("compile", packed, "-o", plain, "--target", "cpu", "--emit", "onnx")
            ops = {node.op_type for node in onnx.load(plain).graph.node}
            self.assertEqual(ops, {"MatMul", "Add"} | (set() if kind == "f32" else {"Cast"}))
            wanted = self.outputs(path, feeds, "ref")
            self.assertEqual(self.outputs(plain, feeds, "ref"), wanted)
            if kind == "f32":
                x = np.load(self.dir / "x.npy")
                y, = ort.InferenceSession(str(plain)).run(None, {"x": x})
                self.close(y, x @ constants["w"] + constants["b"], 1e-5)

    def test_artefact(self):
        """An artefact contains the packed weights, and scores like its model."""
        for name in ("qwen2", "llama-fp16"):
            made, plain = self.dir / "m.gqac", self.dir / "plain.onnx"
            self.good("compile", harness.MODELS / name, "-o", made, "--target", "cpu")
            ids = harness.MODELS / name / "ref" / "ids.txt"
            scores = [self.good("score", m, "--ids", ids, "--target", "cpu", "--format",
                                "json").out for m in (made, harness.MODELS / name)]
            self.assertEqual(*scores)
            self.good("compile", made, "-o", plain, "--target", "cpu", "--emit", "onnx")
            ops = [node.op_type for node in onnx.load(plain).graph.node]
            self.assertIn("MatMul", ops)
            self.assertNotIn("linear", ops)

    def test_refused(self):
        """Packed weights that do not fit, as in the graph of a hostile artefact."""
        text = """graph @g(%x: f32[S,2]) {{
  const %w = f32{shape} 0x{data}
  %y = linear %x, %w {{n={n}, k={k}}} : f32[S,{n}]
  return %y
}}
"""
        path = self.save([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["S", 2])],
                         [("y", ["S", 3])], {"w": self.numbers(2, 3)})
        good = self.dir / "good.gq"
        self.good("compile", path, "--stop-after", "pack", "--emit", "text", "-o", good,
                  "--target", "cpu")
        text = good.read_text()
        self.assertIn("linear", text)
        feeds = [self.feed(self.numbers(4, 2), "f32")]
        self.assertEqual(self.outputs(good, feeds, "cpu"), self.outputs(path, feeds, "ref"))
        self.assertEqual(self.outputs(good, feeds, "ref"), self.outputs(path, feeds, "ref"))
        for old, new in (("n=3", "n=65"), ("n=3", "n=0"), ("k=2", "k=3"), ("k=2", "k=-2"),
                         ("n=3", "n=9223372036854775807")):
            bad = self.dir / "bad.gq"
            self.assertIn(old, text)
            bad.write_text(text.replace(old, new))
            for target in ("cpu", "ref"):
                self.check(harness.gqac("run", bad, "--input", feeds[0], "--output", self.dir,
                                        "--target", target), 3, "linear")


if __name__ == "__main__":
    sys.exit(harness.main())
