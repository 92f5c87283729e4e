#!/usr/bin/env python3
"""Fused row kernels of the cpu target: the bytes of `ref`, and the expected nodes are fused.

    python test/python/test_cpu_fusion.py

Each case is a small graph with the expected number of nodes in chains, norms and rotary kernels.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import harness
from fusion import constant, floats, Fusion, LEVELS, MS, node, RNG, TYPES
from harness import gqac


class Chains(Fusion):
    """Elementwise ops."""

    def test_silu(self):
        """silu(gate) * up: one kernel of Swish (from raise) and a product."""
        self.chain([node("Sigmoid", "g", "s"), node("Mul", "g s", "a"), node("Mul", "a u")],
                   "g u", 2)

    def test_activations(self):
        """Each activation, with a product and alone."""
        for op, domain, attributes in (
                ("Gelu", "", {}), ("Gelu", "", {"approximate": "tanh"}), ("FastGelu", MS, {}),
                ("QuickGelu", MS, {}), ("QuickGelu", MS, {"alpha": 1.0}), ("Swish", "", {}),
                ("Swish", "", {"alpha": 0.5}), ("Tanh", "", {}), ("Erf", "", {})):
            with self.subTest(op=op, **attributes):
                act = node(op, "g", "a", domain, **attributes)
                self.chain([act, node("Mul", "a u")], "g u", 2, kinds=("f32", "f16"))
                self.chain([node(op, "g", "y", domain, **attributes)], "g", 100, kinds=("f32",))

    def test_softcap(self):
        """Scalars, of rank 0 and more."""
        self.chain([node("Div", "x c", "a"), node("Tanh", "a", "b"), node("Mul", "b d")], "x", 3,
                   [("c", ()), ("d", (1, 1))])

    def test_row(self):
        """A row of constants, and values that are used twice."""
        self.chain([node("Add", "x r", "a"), node("Tanh", "a", "s"), node("Mul", "s a", "b"),
                    node("Neg", "b", "c"), node("Sub", "c x", "d"), node("Sqrt", "d")], "x", 6,
                   [("r", ("n",))])

    def test_used_outside(self):
        """A result that other nodes read is stored: the nodes after it are a separate chain."""
        self.chain([node("Sigmoid", "x", "s"), node("Mul", "s s", "a"), node("Add", "a x", "b"),
                    node("Neg", "b")], "x", 4, outputs="a y")

    def test_casts(self):
        """Roundings in the middle are kept."""
        nodes = [node("Cast", "x", "a", to=TYPES["f32"]), node("Mul", "a a", "b"),
                 node("Cast", "b", "c", to=TYPES["f16"]), node("Add", "c x", "d"),
                 node("Cast", "d", "y", to=TYPES["bf16"])]
        path = self.save(nodes, {"x": (["B", 77], "f16")}, [("y", "bf16")])
        self.assertEqual(self.kernels(path).count("chain"), 5)
        self.same(path, {"x": floats(9, 77, kind="f16", wild=True)})

    def test_long(self):
        """More nodes than a kernel can have, and more operands."""
        nodes = [node("Mul", "x x", "v0")]
        nodes += [node(("Add", "Sub", "Mul")[i % 3], f"v{i} x", f"v{i + 1}") for i in range(39)]
        nodes.append(node("Tanh", "v39", "y"))
        self.chain(nodes, "x", 41, kinds=("f32",), wild=False)
        leaves = " ".join(f"x{i}" for i in range(20))
        nodes = [node("Add", f"x{i} x{i + 1}" if i == 0 else f"v{i - 1} x{i + 1}",
                      f"v{i}" if i < 18 else "y") for i in range(19)]
        self.chain(nodes, leaves, 19, kinds=("f32",))

    def test_declined(self):
        """Shapes that broadcast at run time, and integers, are run as on ref."""
        path = self.save([node("Mul", "x z", "a"), node("Sigmoid", "a")],
                         {"x": (["B", "S", 8], "f32"), "z": (["B", 1, 8], "f32")}, ["y"])
        self.assertEqual(self.kernels(path), ["generic", "map"])
        self.same(path, {"x": floats(2, 5, 8), "z": floats(2, 1, 8)})
        path = self.save([node("Mul", "x z", "a"), node("Sigmoid", "a")],
                         {"x": (["B", "S"], "f32"), "z": (["B", "T"], "f32")}, ["y"])
        self.same(path, {"x": floats(2, 5), "z": floats(2, 1)})

    def test_empty(self):
        """No rows."""
        path = self.save([node("Sigmoid", "x", "s"), node("Mul", "s x")],
                         {"x": (["B", 8], "f32")}, ["y"])
        self.same(path, {"x": floats(0, 8)})


class Norms(Fusion):
    """Norms, their types and outputs."""

    def test_norms(self):
        """Every op, with used and unused outputs."""
        cases = [
            (node("RMSNormalization", "x w"), "y", ""),
            (node("SimplifiedLayerNormalization", "x w", "y inv"), "y inv", ""),
            (node("LayerNormalization", "x w b", "y mean inv"), "y mean inv", ""),
            (helper.make_node("SkipSimplifiedLayerNormalization", ["x", "z", "w", "b"],
                              ["y", "", "", "sum"], domain=MS), "y sum", "z"),
            (helper.make_node("SkipLayerNormalization", ["x", "z", "w", "b", "c"],
                              ["y", "mean", "inv", "sum"], domain=MS), "y mean inv sum", "z"),
        ]
        for made, outputs, skip in cases:
            for kind in TYPES:
                for n in (1, 40, 1000):
                    with self.subTest(op=made.op_type, kind=kind, n=n):
                        self.one(made, outputs, skip, kind, n)

    def one(self, made, outputs, skip, kind, n):
        """One node on [3,n] rows."""
        weights = [constant(c, floats(n, kind=kind), kind) for c in "wbc" if c in made.input]
        inputs = {x: (["B", 3, n], kind) for x in ("x", *skip)}
        outs = [(o, "f32" if o in ("mean", "inv") else kind) for o in outputs.split()]
        path = self.save([made], inputs, outs, weights, kind)
        self.assertEqual(self.kernels(path), ["norm"])
        self.same(path, {x: floats(2, 3, n, kind=kind) for x in inputs}, made.op_type)

    def sums(self, nodes, inputs, outputs, count, kind, n=40, constants=()):
        """Nodes around a norm: their kernels, and the bytes of ref."""
        weights = [constant(c, floats(n, kind=kind), kind) for c in "wb"]
        path = self.save(nodes, {x: (["B", 3, n], kind) for x in inputs.split()}, outputs.split(),
                         [*weights, *constants], kind)
        names = self.kernels(path)
        self.assertEqual({k: names.count(k) for k in set(names)}, count, f"{kind} {names}")
        self.same(path, {x: floats(2, 3, n, kind=kind) for x in inputs.split()}, kind)

    def test_sum(self):
        """The Add before a norm is fused, whether others read the sum or not."""
        for made in (node("RMSNormalization", "s w"), node("SimplifiedLayerNormalization", "s w"),
                     node("LayerNormalization", "s w b")):
            for kind in TYPES:
                for outputs in ("y s", "y"):
                    with self.subTest(op=made.op_type, kind=kind, outputs=outputs):
                        self.sums([node("Add", "x z", "s"), made], "x z", outputs,
                                  {"add_norm": 2}, kind, 40 if outputs == "y" else 1000)

    def test_sum_of_two_norms(self):
        """Two norms of one sum: the first one computes it."""
        self.sums([node("Add", "x z", "s"), node("RMSNormalization", "s w"),
                   node("LayerNormalization", "s b", "t"), node("Tanh", "s", "v")], "x z", "y t v",
                  {"add_norm": 2, "norm": 1, "map": 1}, "f16")

    def test_sum_as_weight(self):
        """If a norm also reads the sum as its weight or bias, the sum is not fused."""
        for made in (node("RMSNormalization", "s s"), node("LayerNormalization", "s w s")):
            path = self.save([node("Add", "x z", "s"), made], {"x": ([40], "f32"), "z": ([40], "f32")},
                             ["y"], [constant("w", floats(40))])
            self.assertEqual(sorted(self.kernels(path)), ["map", "norm"])
            self.same(path, {"x": floats(40), "z": floats(40)}, made.op_type)

    def test_sum_that_belongs_elsewhere(self):
        """A sum of a product, of a chain, or with a row of constants is computed where its operands
        are."""
        norm = node("RMSNormalization", "s w")
        weight = constant("m", floats(40, 40) / 16)
        self.sums([node("MatMul", "x m", "a"), node("Add", "z a", "s"), norm], "x z", "y s",
                  {"linear_chain": 2, "norm": 1}, "f32", constants=[weight])
        self.sums([node("Tanh", "x", "a"), node("Add", "z a", "s"), norm], "x z", "y s",
                  {"chain": 2, "norm": 1}, "f32")
        self.sums([node("Add", "x b", "s"), norm], "x", "y s", {"map": 1, "norm": 1}, "f32")


class Heads(Fusion):
    """Rotary embeddings with the nodes before them."""

    def rotary(self, before, kind, size, shape, count, **attributes):
        """RotaryEmbedding of `q` at positions, rotary tables of half the size."""
        tables = [constant(t, floats(30, size // 2, kind=kind), kind) for t in ("cos", "sin")]
        tables += [constant("w", floats(size, kind=kind), kind)]
        tables += [numpy_helper.from_array(np.int64(v), k) for k, v in
                   (("split", [0, -1, size]), ("join", [0, -1, 3 * size]))]
        nodes = [*before, node("RotaryEmbedding", "q ids cos sin", "y", MS, **attributes)]
        path = self.save(nodes, {"x": (shape, kind), "ids": (["B", "S"], TensorProto.INT64)},
                         ["y"], tables, kind)
        names = self.kernels(path)
        self.assertEqual((names.count("heads"), names.count("rotary")), count, f"{names}")
        dims = [{"B": 2, "S": 5}.get(d, d) for d in shape]
        self.same(path, {"x": floats(*dims, kind=kind),
                         "ids": RNG.integers(0, 30, (2, 5)).astype(np.int64)})

    def test_packed(self):
        """Heads are read in the packed row."""
        for kind in TYPES:
            for interleaved in (0, 1):
                self.rotary([node("Identity", "x", "q")], kind, 24, ["B", "S", 72], (2, 0),
                            num_heads=3, interleaved=interleaved)

    def test_heads(self):
        """[B,H,S,D], and a norm before it."""
        for kind in TYPES:
            self.rotary([node("Identity", "x", "q")], kind, 48, ["B", 3, "S", 48], (0, 1))
            self.rotary([node("RMSNormalization", "x w", "q")], kind, 48, ["B", 3, "S", 48], (2, 0))

    def test_reshaped_norm(self):
        """Reshape, norm, Reshape, split_heads and rotary in one kernel."""
        for kind in TYPES:
            for op in ("SimplifiedLayerNormalization", "RMSNormalization"):
                before = [node("Reshape", "x split", "a"), node(op, "a w", "b", epsilon=1e-6),
                          node("Reshape", "b join", "q")]
                self.rotary(before, kind, 24, ["B", "S", 72], (5, 0), num_heads=3)

    def test_norm_of_other_rows(self):
        """A norm over half a head is not fused as one over a head."""
        before = [node("Reshape", "x half", "a"), node("RMSNormalization", "a wh", "b"),
                  node("Reshape", "b join", "q")]
        tables = [constant(t, floats(30, 12)) for t in ("cos", "sin")]
        tables += [constant("wh", floats(12)),
                   numpy_helper.from_array(np.int64([0, -1, 12]), "half"),
                   numpy_helper.from_array(np.int64([0, -1, 72]), "join")]
        nodes = [*before, node("RotaryEmbedding", "q ids cos sin", "y", MS, num_heads=3)]
        path = self.save(nodes, {"x": (["B", "S", 72], "f32"),
                                 "ids": (["B", "S"], TensorProto.INT64)}, ["y"], tables)
        self.assertEqual(self.kernels(path).count("heads"), 2)
        self.same(path, {"x": floats(2, 5, 72),
                         "ids": RNG.integers(0, 30, (2, 5)).astype(np.int64)})


class Products(Fusion):
    """Products of one x in one call, and the chains that read them. `ref` runs them one by one."""

    K = 70

    def weights(self, kind, *widths):
        """w0, w1, ...: constant weights with these widths."""
        return [constant(f"w{i}", floats(self.K, n, kind=kind) / 16 if kind != "bf16" else
                         floats(self.K, n, kind=kind), kind) for i, n in enumerate(widths)]

    def products(self, nodes, made, outputs, count, kind="f32", inputs="x", rows=(1, 5)):
        """The bytes of ref; count: nodes of the kernels that have more than one."""
        shapes = {"x": ["B", "S", self.K], "z": ["B", "S", self.K], "r": ["B", "S", 200]}
        path = self.save(nodes, {n: (shapes[n], kind) for n in inputs.split()}, outputs.split(),
                         made, kind)
        names = self.kernels(path)
        found = {n: names.count(n) for n in set(names)}
        self.assertEqual(found, count, f"{kind} {names}")
        for n in rows:
            feeds = {i: floats(2 if n > 1 else 1, n, shapes[i][2], kind=kind)
                     for i in inputs.split()}
            self.same(path, feeds, f"{kind} {n}")

    def test_gate_up(self):
        """silu(gate) * up with both products; many rows; a panel that is not full."""
        nodes = [node("MatMul", "x w0", "g"), node("MatMul", "x w1", "u"), node("Sigmoid", "g", "s"),
                 node("Mul", "g s", "a"), node("Mul", "a u")]
        for kind in TYPES:
            self.products(nodes, self.weights(kind, 200, 200), "y", {"linear_chain": 4}, kind,
                          rows=(1, 5, 150))
        nodes = [*nodes[:2], node("Gelu", "g", "a", approximate="tanh"), node("Mul", "a u")]
        self.products(nodes, self.weights("f16", 64, 64), "y", {"linear_chain": 4}, "f16")

    def test_seen_by_others(self):
        """A product that others read is not part of a chain, but shares a call."""
        nodes = [node("MatMul", "x w0", "g"), node("MatMul", "x w1", "u"), node("Sigmoid", "g", "s"),
                 node("Mul", "s u")]
        made = self.weights("f32", 200, 200)
        self.products(nodes, made, "y g u", {"linear_group": 2, "chain": 2})
        self.products(nodes, made, "y g", {"linear_group": 2, "chain": 2})

    def test_residual(self):
        """A product and the value added to it; a softcap on it."""
        for kind in TYPES:
            self.products([node("MatMul", "x w0", "a"), node("Add", "r a")],
                          self.weights(kind, 200), "y", {"linear_chain": 2}, kind, "x r")
        cap = constant("c", floats())
        self.products([node("MatMul", "x w0", "a"), node("Div", "a c", "b"), node("Tanh", "b", "d"),
                       node("Mul", "d c")], [*self.weights("f32", 130), cap], "y",
                      {"linear_chain": 4})

    def test_other_x(self):
        """Products of another x are computed before."""
        nodes = [node("MatMul", "x w0", "g"), node("MatMul", "z w1", "u"), node("Mul", "g u")]
        self.products(nodes, self.weights("f32", 200, 200), "y", {"linear_chain": 2, "linear": 1},
                      inputs="x z")

    def test_group(self):
        """Three widths, with readers between them, and types."""
        nodes = [node("MatMul", "x w0", "q"), node("Tanh", "q", "a"), node("MatMul", "x w1", "k"),
                 node("Exp", "k", "b"), node("MatMul", "x w2", "v")]
        for kind in TYPES:
            self.products(nodes, self.weights(kind, 200, 64, 70), "a b v q", {
                "linear_group": 3, "map": 1, "generic": 1}, kind, rows=(1, 5, 150))

    def test_group_with_bias(self):
        """Their sums are separate: one call for all products is faster."""
        nodes = []
        made = self.weights("f16", 64, 64)
        for i in range(2):
            nodes += [node("MatMul", f"x w{i}", f"m{i}"), node("Add", f"m{i} b{i}", f"y{i}")]
            made.append(constant(f"b{i}", floats(64, kind="f16")))
        self.products(nodes, made, "y0 y1", {"linear_group": 2, "map": 2}, "f16")

    def test_many(self):
        """More products of one x than a call can have."""
        nodes = [node("MatMul", f"x w{i}", f"y{i}") for i in range(19)]
        self.products(nodes, self.weights("f32", *range(1, 20)),
                      " ".join(f"y{i}" for i in range(19)), {"linear_group": 19})

    def quantised(self, name, n, bits=4, block=32):
        """Constants of a MatMulNBits."""
        blocks = -(-self.K // block)
        codes = RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        return [numpy_helper.from_array(codes, f"c{name}"),
                constant(f"s{name}", floats(n, blocks) / 32)]

    def test_quantised(self):
        """The same for int8 and fp32 activations, with equal and different bits and blocks."""
        form = {"K": self.K, "block_size": 32, "domain": MS}
        for level in (4, 0):
            for bits in (4, 8):
                both = [node("MatMulNBits", f"x c{i} s{i}", v, N=200, bits=bits,
                             accuracy_level=level, **form) for i, v in enumerate("gu")]
                made = self.quantised(0, 200, bits) + self.quantised(1, 200, bits)
                tail = [node("Sigmoid", "g", "s"), node("Mul", "g s", "a"), node("Mul", "a u")]
                self.products([*both, *tail], made, "y", {"linear_chain": 4}, rows=(1, 5, 150))
                self.products(both, made, "g u", {"linear_nbits_group": 2}, rows=(1, 5, 150))
        row = constant("r0", floats(200))
        self.products([both[0], node("Add", "g r0")], [*made[:2], row], "y", {"linear_chain": 2})
        other = [both[0], node("MatMulNBits", "x c1 s1", "u", N=100, bits=4, accuracy_level=0,
                               **form)]
        self.products(other, made[:2] + self.quantised(1, 100), "g u", {"linear_nbits": 2})


class Models(Fusion):
    """Exports: levels agree on every logit."""

    def test_levels(self):
        """The scalar level is the contract."""
        for name in ("llama", "qwen3", "gemma2", "phi3", "llama-fp16"):
            ids = harness.MODELS / name / "ref" / "ids.txt"
            seen = {}
            for level in LEVELS:
                out = self.dir / f"{name}-{level}.npy"
                made = gqac("score", harness.model(name), "--ids", ids, "--target", "cpu",
                            "--logits", out, env={"GQAC_CPU": level})
                if made.code != 77:
                    self.check(made, 0)
                    seen[level] = out.read_bytes()
            self.assertIn("scalar", seen)
            for level, logits in seen.items():
                self.assertEqual(logits, seen["scalar"], f"{name} {level}")

    def test_split(self):
        """q/k norm and rotary in one kernel, and a logit softcap: the same bits for every split."""
        for name in ("qwen3", "gemma2"):
            self.good("equiv", harness.model(name), "--tokens", 24, "--splits", "random:3",
                      "--batch", 3, "--threads", "1,2", "--target", "cpu")


if __name__ == "__main__":
    raise SystemExit(harness.main())
