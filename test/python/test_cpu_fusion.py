#!/usr/bin/env python3
"""Fused row kernels of the cpu target: the bytes of `ref`, and the nodes that were to be fused are.

    python test/python/test_cpu_fusion.py

Each case is a small graph with the number of nodes that chains, norms and rotary kernels take. It
runs on both targets, at every level of the machine; results are compared as bytes, any NaN as one.
"""

import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import Case, gqac

MS = "com.microsoft"
ABSENT = set()  # levels that this machine does not run
LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
RNG = np.random.default_rng(7)


def node(op, inputs, outputs="y", domain="", **attributes):
    """A node; names as words."""
    return helper.make_node(op, inputs.split(), outputs.split(), domain=domain, **attributes)


def floats(*shape, kind="f32", wild=False):
    """Values of a type as its .npy file holds them; wild: infinities, NaN and tiny values too."""
    x = np.asarray(RNG.standard_normal(shape) * 3, np.float32)
    if wild and x.ndim:
        x.flat[::7] = np.resize(np.float32([np.inf, -np.inf, np.nan, 1e-40, -0.0, 88.7, -104.0]),
                                x.flat[::7].shape)
    if kind == "f16":
        return x.astype(np.float16)
    return (x.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else x


def constant(name, values, kind="f32"):
    """An initializer of values made by floats()."""
    values = np.asarray(values)
    if kind == "bf16":
        return helper.make_tensor(name, TYPES[kind], values.shape, values.tobytes(), raw=True)
    return numpy_helper.from_array(values, name)


def canonical(x):
    """The same bytes for every NaN."""
    if x.dtype.kind == "f":
        return np.where(np.isnan(x), x.dtype.type(np.nan), x).tobytes()
    if x.dtype.itemsize == 2:  # bf16
        bits = x.view(np.uint16)
        return np.where((bits & 0x7FFF) > 0x7F80, np.uint16(0x7FC0), bits).tobytes()
    return x.tobytes()


class Fusion(Case):
    """Graphs on ref and on cpu."""

    def save(self, nodes, inputs, outputs, constants=(), kind="f32"):
        """Write a model; inputs are {name: (dims, type)}, outputs names or (name, type)."""
        outs = [o if isinstance(o, tuple) else (o, kind) for o in outputs]
        graph = helper.make_graph(
            nodes, "g",
            [helper.make_tensor_value_info(n, TYPES.get(t, t), d) for n, (d, t) in inputs.items()],
            [helper.make_tensor_value_info(n, TYPES[t], None) for n, t in outs], list(constants))
        made = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)])
        path = self.dir / "model.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    def kernels(self, path):
        """Kernels of the nodes."""
        dump = self.good("compile", path, "--target", "cpu", "--disable", "stateful", "--dump", "claim",
                         "--stop-after", "claim").out
        return re.findall(r'via "cpu\.(\w+)"', dump)

    def results(self, path, feeds, target, level=None):
        """Outputs by name."""
        if level in ABSENT:
            return None
        folder, out = self.dir / "in", self.dir / f"out-{target}-{level}"
        folder.mkdir(exist_ok=True)
        for old in out.glob("*.npy"):
            old.unlink()
        for name, values in feeds.items():
            np.save(folder / f"{name}.npy", values)
        made = gqac("run", path, "--inputs", folder, "--output", out, "--target", target,
                    "--threads", "2", "-q", env={"GQAC_CPU": level} if level else None)
        if target == "cpu" and made.code == 77:
            ABSENT.add(level)
            return None
        self.check(made, 0)
        return {f.name: np.load(f) for f in sorted(out.glob("*.npy"))}

    def same(self, path, feeds, label=""):
        """cpu gives the bytes of ref at every level."""
        expected = self.results(path, feeds, "ref")
        self.assertTrue(expected)
        ran = 0
        for level in LEVELS:
            got = self.results(path, feeds, "cpu", level)
            if got is None:
                continue
            ran += 1
            self.assertEqual(got.keys(), expected.keys())
            for name, values in expected.items():
                self.assertEqual(got[name].shape, values.shape, f"{label} {name}")
                if canonical(got[name]) != canonical(values):
                    a, b = (v.view(np.uint16) if v.dtype.kind == "V" else v
                            for v in (got[name], values))
                    self.fail(f"{label} {level} {name}: {np.argwhere(a != b)[:4].tolist()}")
        self.assertGreaterEqual(ran, 1)

    def chain(self, nodes, leaves, count, constants=(), kinds=("f32", "f16", "bf16"), outputs="y",
              wild=True):
        """A graph of [B,S,n] leaves in every type; `count` nodes belong to chains."""
        for kind in kinds:
            for n in (1, 24, 300):
                made = [constant(c, floats(*(n if d == "n" else d for d in shape), kind=kind), kind)
                        for c, shape in constants]
                path = self.save(nodes, {x: (["B", "S", n], kind) for x in leaves.split()},
                                 outputs.split(), made, kind)
                names = self.kernels(path)
                self.assertEqual(names.count("chain") + 100 * names.count("map"), count,
                                 f"{kind} {n}: {names}")
                feeds = {x: floats(2, 5, n, kind=kind, wild=wild) for x in leaves.split()}
                self.same(path, feeds, f"{kind} {n}")


class Chains(Fusion):
    """Elementwise ops."""

    def test_silu(self):
        """silu(gate) * up: one kernel, of Swish (which raise makes of it) and a product."""
        self.chain([node("Sigmoid", "g", "s"), node("Mul", "g s", "a"), node("Mul", "a u")],
                   "g u", 2)

    def test_activations(self):
        """Each activation beside a product, and alone."""
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
        """A row of constants, and what is used twice."""
        self.chain([node("Add", "x r", "a"), node("Tanh", "a", "s"), node("Mul", "s a", "b"),
                    node("Neg", "b", "c"), node("Sub", "c x", "d"), node("Sqrt", "d")], "x", 6,
                   [("r", ("n",))])

    def test_used_outside(self):
        """A result that others see is made: what is behind it is a chain of its own."""
        self.chain([node("Sigmoid", "x", "s"), node("Mul", "s s", "a"), node("Add", "a x", "b"),
                    node("Neg", "b")], "x", 4, outputs="a y")

    def test_casts(self):
        """Roundings in the middle stay."""
        nodes = [node("Cast", "x", "a", to=TYPES["f32"]), node("Mul", "a a", "b"),
                 node("Cast", "b", "c", to=TYPES["f16"]), node("Add", "c x", "d"),
                 node("Cast", "d", "y", to=TYPES["bf16"])]
        path = self.save(nodes, {"x": (["B", 77], "f16")}, [("y", "bf16")])
        self.assertEqual(self.kernels(path).count("chain"), 5)
        self.same(path, {"x": floats(9, 77, kind="f16", wild=True)})

    def test_long(self):
        """More nodes than a kernel takes, and more operands."""
        nodes = [node("Mul", "x x", "v0")]
        nodes += [node(("Add", "Sub", "Mul")[i % 3], f"v{i} x", f"v{i + 1}") for i in range(39)]
        nodes.append(node("Tanh", "v39", "y"))
        self.chain(nodes, "x", 41, kinds=("f32",), wild=False)
        leaves = " ".join(f"x{i}" for i in range(20))
        nodes = [node("Add", f"x{i} x{i + 1}" if i == 0 else f"v{i - 1} x{i + 1}",
                      f"v{i}" if i < 18 else "y") for i in range(19)]
        self.chain(nodes, leaves, 19, kinds=("f32",))

    def test_declined(self):
        """Shapes that broadcast at run time, and integers, run as on ref."""
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
        """Every op, wanted and unwanted outputs."""
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
        """Nodes around a norm: the kernels that they get, and the bytes of ref."""
        weights = [constant(c, floats(n, kind=kind), kind) for c in "wb"]
        path = self.save(nodes, {x: (["B", 3, n], kind) for x in inputs.split()}, outputs.split(),
                         [*weights, *constants], kind)
        names = self.kernels(path)
        self.assertEqual({k: names.count(k) for k in set(names)}, count, f"{kind} {names}")
        self.same(path, {x: floats(2, 3, n, kind=kind) for x in inputs.split()}, kind)

    def test_sum(self):
        """The Add before a norm is part of it, whether others read the sum or not."""
        for made in (node("RMSNormalization", "s w"), node("SimplifiedLayerNormalization", "s w"),
                     node("LayerNormalization", "s w b")):
            for kind in TYPES:
                for outputs in ("y s", "y"):
                    with self.subTest(op=made.op_type, kind=kind, outputs=outputs):
                        self.sums([node("Add", "x z", "s"), made], "x z", outputs,
                                  {"add_norm": 2}, kind, 40 if outputs == "y" else 1000)

    def test_sum_of_two_norms(self):
        """Two norms of one sum: one of them makes it."""
        self.sums([node("Add", "x z", "s"), node("RMSNormalization", "s w"),
                   node("LayerNormalization", "s b", "t"), node("Tanh", "s", "v")], "x z", "y t v",
                  {"add_norm": 2, "norm": 1, "map": 1}, "f16")

    def test_sum_as_weight(self):
        """A norm that reads the sum as its weight or bias, too, leaves the sum to be a step."""
        for made in (node("RMSNormalization", "s s"), node("LayerNormalization", "s w s")):
            path = self.save([node("Add", "x z", "s"), made], {"x": ([40], "f32"), "z": ([40], "f32")},
                             ["y"], [constant("w", floats(40))])
            self.assertEqual(sorted(self.kernels(path)), ["map", "norm"])
            self.same(path, {"x": floats(40), "z": floats(40)}, made.op_type)

    def test_sum_that_belongs_elsewhere(self):
        """A sum of a product, of a chain, or with a row of constants is made where they are."""
        norm = node("RMSNormalization", "s w")
        weight = constant("m", floats(40, 40) / 16)
        self.sums([node("MatMul", "x m", "a"), node("Add", "z a", "s"), norm], "x z", "y s",
                  {"linear_chain": 2, "norm": 1}, "f32", constants=[weight])
        self.sums([node("Tanh", "x", "a"), node("Add", "z a", "s"), norm], "x z", "y s",
                  {"chain": 2, "norm": 1}, "f32")
        self.sums([node("Add", "x b", "s"), norm], "x", "y s", {"map": 1, "norm": 1}, "f32")


class Heads(Fusion):
    """Rotary embeddings with what stands before them."""

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
        """Heads are taken out of the packed row."""
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
        """A norm over half a head is not that of a head."""
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
        """w0, w1, ...: constant weights of those widths."""
        return [constant(f"w{i}", floats(self.K, n, kind=kind) / 16 if kind != "bf16" else
                         floats(self.K, n, kind=kind), kind) for i, n in enumerate(widths)]

    def products(self, nodes, made, outputs, count, kind="f32", inputs="x", rows=(1, 5)):
        """Bytes of ref; count: nodes by the kernels that have more than one."""
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
        """A product that others read is no part of a chain, but shares a call."""
        nodes = [node("MatMul", "x w0", "g"), node("MatMul", "x w1", "u"), node("Sigmoid", "g", "s"),
                 node("Mul", "s u")]
        made = self.weights("f32", 200, 200)
        self.products(nodes, made, "y g u", {"linear_group": 2, "chain": 2})
        self.products(nodes, made, "y g", {"linear_group": 2, "chain": 2})

    def test_residual(self):
        """A product and what is added to it; a softcap on it."""
        for kind in TYPES:
            self.products([node("MatMul", "x w0", "a"), node("Add", "r a")],
                          self.weights(kind, 200), "y", {"linear_chain": 2}, kind, "x r")
        cap = constant("c", floats())
        self.products([node("MatMul", "x w0", "a"), node("Div", "a c", "b"), node("Tanh", "b", "d"),
                       node("Mul", "d c")], [*self.weights("f32", 130), cap], "y",
                      {"linear_chain": 4})

    def test_other_x(self):
        """Products of another x are made before."""
        nodes = [node("MatMul", "x w0", "g"), node("MatMul", "z w1", "u"), node("Mul", "g u")]
        self.products(nodes, self.weights("f32", 200, 200), "y", {"linear_chain": 2, "linear": 1},
                      inputs="x z")

    def test_group(self):
        """Three widths, readers between, types."""
        nodes = [node("MatMul", "x w0", "q"), node("Tanh", "q", "a"), node("MatMul", "x w1", "k"),
                 node("Exp", "k", "b"), node("MatMul", "x w2", "v")]
        for kind in TYPES:
            self.products(nodes, self.weights(kind, 200, 64, 70), "a b v q", {
                "linear_group": 3, "map": 1, "generic": 1}, kind, rows=(1, 5, 150))

    def test_group_with_bias(self):
        """What is added to each stays apart: one call for all products is worth more."""
        nodes = []
        made = self.weights("f16", 64, 64)
        for i in range(2):
            nodes += [node("MatMul", f"x w{i}", f"m{i}"), node("Add", f"m{i} b{i}", f"y{i}")]
            made.append(constant(f"b{i}", floats(64, kind="f16")))
        self.products(nodes, made, "y0 y1", {"linear_group": 2, "map": 2}, "f16")

    def test_many(self):
        """More products of one x than a call takes."""
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
        """The same for int8 activations and for fp32 ones, bits and blocks alike or not."""
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


class Appended(Fusion):
    """Heads that go straight into the cache of a sequence."""

    def test_against_stateless(self):
        """The logits of a run without a sequence, where every step is a node of its own."""
        for name in ("llama", "qwen2", "qwen3", "gemma2", "phi3", "mistral", "llama-fp16"):
            path = harness.model(name)
            dump = self.good("compile", path, "--target", "cpu", "--dump", "claim", "--stop-after",
                             "claim").out
            layers = dump.count(" = attention ")
            self.assertEqual(len(re.findall(r'= kv_append .*via "cpu.heads_append"', dump)),
                             2 * layers, name)
            self.assertEqual(len(re.findall(r'= rotary .*via "cpu.heads_append"', dump)),
                             2 * layers, name)
            self.assertNotRegex(dump, r"= (split_heads|Split) .*via \"cpu.generic\"", name)
            ids = harness.MODELS / name / "ref" / "ids.txt"
            alone, stepped = self.stateless(path, ids), self.dir / f"{name}.npy"
            self.good("score", path, "--ids", ids, "--target", "cpu", "--logits", stepped)
            self.assertEqual(np.load(stepped).tobytes(), alone.astype(np.float32).tobytes(), name)

    def test_x28_hybrid(self):
        """X28: a chunk behind a cached prefix, and single tokens behind that. Heads and appends
        are one kernel, and the logits are those of a run in which they are not."""
        for name in ("llama", "gemma2", "llama-int4-acc4"):
            path, ids = harness.model(name), harness.MODELS / name / "ref" / "ids.txt"
            self.assertIn('via "cpu.heads_append"', self.good(
                "compile", path, "--target", "cpu", "--dump", "claim", "--stop-after",
                "claim").out)
            alone, stepped = self.stateless(self.shown(path), ids), self.dir / f"{name}.npy"
            for splits in ("9,15", "20,1,1,7"):
                self.good("score", path, "--ids", ids, "--target", "cpu", "--splits", splits,
                          "--logits", stepped)
                self.assertEqual(np.load(stepped).tobytes(), alone.astype(np.float32).tobytes(),
                                 f"{name} {splits}")

    def shown(self, path):
        """The lowered graph of a run, which returns its heads besides: so that they are split,
        and keys turned, by nodes of their own."""
        text = self.dir / "shown.gq"
        self.good("compile", path, "--stateless", "--stop-after", "lower", "--emit", "text", "-o",
                  text)
        graph = text.read_text()
        heads = [value for values in re.findall(r"^  (%.*) = (?:rotary|split_heads) ", graph, re.M)
                 for value in values.split(", ")]
        self.assertTrue(heads)
        more = "".join(f', {value} as "heads.{i}"' for i, value in enumerate(heads))
        text.write_text(re.sub(r"^(  return .*)$", lambda m: m[1] + more, graph, flags=re.M))
        dump = self.good("compile", text, "--target", "cpu", "--stateless", "--dump", "claim",
                         "--stop-after", "claim").out
        self.assertNotRegex(dump, r'= split_heads .*via "cpu.heads_append"')
        self.assertEqual(len(re.findall(r'= rotary .*via "cpu.heads_append"', dump)),
                         dump.count(" = attention "))
        return text

    def test_projections_apart(self):
        """Queries, keys and values by products of their own, as tracers write them."""
        for name in ("llama", "gemma", "mistral", "dynamo-qwen2"):
            dump = self.good("compile", harness.ROOT / "test" / "traced" / name / "model.onnx",
                             "--target", "cpu", "--dump", "claim", "--stop-after", "claim").out
            layers = dump.count(" = attend ")
            self.assertGreater(layers, 0, name)
            for op, count in (("kv_append", 2), ("rotary", 2), ("split_heads", 3)):
                self.assertEqual(len(re.findall(rf'= {op} .*via "cpu.heads_append"', dump)),
                                 count * layers, f"{name} {op}")

    def test_unwanted_results(self):
        """Results of an append that nobody names: the next step reads the cache all the same."""
        text = self.dir / "stateful.gq"
        self.good("compile", harness.model("llama-int4-acc4"), "--stop-after", "stateful",
                  "--emit", "text", "-o", text)
        graph = text.read_text()
        for token in re.findall(r"(%[\w.]+), %[\w.]+ = kv_append ", graph):
            graph = re.sub(rf"{re.escape(token)}, (%[\w.]+ = kv_append .*?) : token,",
                           r"_, \1 : _,", graph)
            graph = re.sub(rf"(return .*), {re.escape(token)} as [^,\n]*", r"\1", graph)
        self.assertIn(" : _, f32", graph)
        text.write_text(graph)
        for target in ("cpu", "ref"):
            self.good("score", text, "--ids", harness.MODELS / "llama-int4-acc4" / "ref" / "ids.txt", "--target", target,
                      "--logits", self.dir / f"{target}.npy")
        gap = np.abs(np.load(self.dir / "cpu.npy") - np.load(self.dir / "ref.npy")).max()
        self.assertLess(gap, 1e-3)

    def stateless(self, path, ids):
        """Logits of `run` with an empty past."""
        info = self.good("inspect", path, "--format", "json").json()
        tokens = np.array([harness.read_ids(ids)], np.int64)
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens),
                 "position_ids": np.arange(tokens.shape[1])[None]}
        for pair in info["kv_pairs"]:
            feeds[pair["past"]] = np.zeros((1, pair["heads"], 0, pair["head_size"]),
                                           np.float16 if pair["dtype"] == "f16" else np.float32)
        folder = self.dir / "feeds"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for put in info["inputs"]:
            kind = np.int32 if put["dtype"] == "i32" else feeds[put["name"]].dtype
            np.save(folder / (put["name"].replace("/", "_") + ".npy"),
                    feeds[put["name"]].astype(kind))
        self.good("run", path, "--inputs", folder, "--output", self.dir / "out", "--target", "cpu",
                  "-q")
        return np.load(self.dir / "out" / "logits.npy")


class Packed(Fusion):
    """Attention over explicit past and present: keys and values go to their place at once, queries
    that are not turned are read in the packed row."""

    HEADS, KV, SIZE = 4, 2, 24

    def attention(self, packed, past, kind, turned):
        """GroupQueryAttention of 2 x (packed row), or of q, k and v by themselves."""
        widths = [h * self.SIZE for h in (self.HEADS, self.KV, self.KV)]
        names = ["x"] if packed else ["q", "k", "v"]
        sizes = [sum(widths)] if packed else widths
        nodes = [node("Mul", f"{n} two", f"{n}2") for n in names]
        operands = [*(f"{n}2" for n in names), *([""] * (3 - len(names))),
                    *(["pk", "pv"] if past else ["", ""]), "seq", "total"]
        if turned:
            operands += ["cos", "sin"]
        nodes.append(helper.make_node("GroupQueryAttention", operands, ["a", "k_out", "v_out"],
                                      domain=MS, num_heads=self.HEADS, kv_num_heads=self.KV,
                                      do_rotary=int(turned)))
        nodes.append(node("Neg", "a"))
        inputs = {n: (["B", "S", w], kind) for n, w in zip(names, sizes)}
        if past:
            inputs |= {n: (["B", self.KV, "P", self.SIZE], kind) for n in ("pk", "pv")}
        inputs |= {"seq": (["B"], TensorProto.INT32), "total": ([], TensorProto.INT32)}
        tables = [constant(t, np.full((200, self.SIZE // 2), v, np.float32).astype(
            np.float16 if kind == "f16" else np.float32), kind)
            for t, v in (("cos", 0.5), ("sin", 0.25))] if turned else []
        two = np.float32(2).astype(np.float16 if kind == "f16" else np.float32)
        return self.save(nodes, inputs, ["y", "k_out", "v_out"],
                         [*tables, constant("two", two, kind)], kind)

    def one(self, rows, past, kind, turned):
        """Packed and apart give the same bytes; ref gives the same keys and values."""
        q, k, v = (floats(2, rows, h * self.SIZE, kind=kind)
                   for h in (self.HEADS, self.KV, self.KV))
        rest = {"seq": np.int32([past + rows - 1, past + max(rows - 3, 1) - 1]),
                "total": np.int32(past + rows)}
        if past:
            rest["seq"][1] = past + rows - 1
            rest |= {n: floats(2, self.KV, past, self.SIZE, kind=kind) for n in ("pk", "pv")}
        apart = self.attention(False, past, kind, turned)
        self.assertEqual(self.kernels(apart).count("heads_append"), 5 + 2 * turned)
        expected = {level: self.results(apart, {"q": q, "k": k, "v": v, **rest}, "cpu", level)
                    for level in LEVELS}
        for old in (self.dir / "in").iterdir():
            old.unlink()
        packed = self.attention(True, past, kind, turned)
        self.assertEqual(self.kernels(packed).count("heads_append"), 3 + 2 * turned)
        feeds = {"x": np.concatenate([q, k, v], axis=2), **rest}
        ref = self.results(packed, feeds, "ref")
        for level in LEVELS:
            got = self.results(packed, feeds, "cpu", level)
            for name in got or ():
                self.assertEqual(got[name].tobytes(), expected[level][name].tobytes(), f"{level} {name}")
                self.assertEqual(got[name].shape, ref[name].shape)
                if name != "y.npy":
                    self.assertEqual(got[name].tobytes(), ref[name].tobytes(), f"{level} {name}")
            if got:
                np.testing.assert_allclose(got["y.npy"].astype(np.float32), ref["y.npy"].astype(np.float32),
                                           rtol=0, atol=1e-4 if kind == "f32" else 2e-2)
        for old in (self.dir / "in").iterdir():
            old.unlink()

    def test_present(self):
        """One and many rows, ragged ones, behind a past and without."""
        for rows, past, kind, turned in ((5, 0, "f32", False), (150, 0, "f32", False),
                                         (1, 70, "f32", False), (70, 9, "f16", False),
                                         (5, 0, "f32", True), (66, 3, "f32", True)):
            with self.subTest(rows=rows, past=past, kind=kind, turned=turned):
                self.one(rows, past, kind, turned)


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
