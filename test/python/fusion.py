"""Graphs whose steps the cpu target fuses: written node by node, run on `ref` and at every level.

Results are compared as bytes, with all NaN equal; the kernels of a graph show what was fused.
"""

import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from harness import Case, gqac

MS = "com.microsoft"
ABSENT = set()  # levels that this machine cannot run
LEVELS = ("scalar", "avx2", "avx512", "avx512vnni", "avx512bf16")
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
RNG = np.random.default_rng(7)


def node(op, inputs, outputs="y", domain="", **attributes):
    """A node; names as words."""
    return helper.make_node(op, inputs.split(), outputs.split(), domain=domain, **attributes)


def floats(*shape, kind="f32", wild=False):
    """Values of a type as in its .npy file; wild: also infinities, NaN and tiny values."""
    x = np.asarray(RNG.standard_normal(shape) * 3, np.float32)
    if wild and x.ndim:
        x.flat[::7] = np.resize(np.float32([np.inf, -np.inf, np.nan, 1e-40, -0.0, 88.7, -104.0]),
                                x.flat[::7].shape)
    if kind == "f16":
        return x.astype(np.float16)
    return (x.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else x


def constant(name, values, kind="f32"):
    """An initializer with values from floats()."""
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
        """The kernels of the nodes."""
        dump = self.good("compile", path, "--target", "cpu", "--disable", "stateful", "--dump", "claim",
                         "--stop-after", "claim").out
        return re.findall(r'via "cpu\.(\w+)"', dump)

    def results(self, path, feeds, target, level=None):
        """The outputs by name."""
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
        """cpu returns the bytes of ref at every level."""
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
