"""Single nodes compared with ONNX Runtime, for the tests that generate them at random.

Nodes that ONNX Runtime refuses are counted and skipped; enough must have been compared.
GQAC_TEST_SEED chooses other cases, GQAC_TEST_SHOW=1 prints the refusals.
"""

import os
import random
import shutil

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import FULL, Case, gqac, relative

try:
    import onnxruntime as ort
except ImportError:
    ort = None

SEED = int(os.environ.get("GQAC_TEST_SEED", "7"))
COUNT = 600 if FULL else 120
LIMIT = 2e-5


class Node:
    """One op: inputs by name in schema order (None: absent), outputs (a name, or name and type),
    attributes."""

    opset = 24

    def __init__(self, op, domain, inputs, outputs, **attributes):
        self.op, self.domain, self.inputs, self.attributes = op, domain, inputs, attributes
        pairs = [o if isinstance(o, tuple) else (o, TensorProto.FLOAT) for o in outputs]
        self.outputs = [name for name, _ in pairs]
        self.types = dict(pairs)

    def model(self):
        """The model with only this node."""
        feeds = self.feeds()
        names = [n if v is not None else "" for n, v in self.inputs.items()]
        while not names[-1]:
            names.pop()
        node = helper.make_node(self.op, names, self.outputs, domain=self.domain, name="it",
                                **self.attributes)
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for n, v in feeds.items()],
            [helper.make_tensor_value_info(n, self.types[n], None) for n in self.outputs if n])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self):
        """The inputs that are present."""
        return {n: v for n, v in self.inputs.items() if v is not None}

    def peer(self):
        """The outputs of ONNX Runtime; None if it refuses."""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = ort.InferenceSession(self.model().SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            return session.run([n for n in self.outputs if n], self.feeds())
        except Exception as error:  # pylint: disable=broad-exception-caught
            if os.environ.get("GQAC_TEST_SHOW"):
                print(self, str(error)[:300])
            return None

    def __str__(self):
        shapes = {n: list(v.shape) for n, v in self.feeds().items()}
        return f"{self.op} {shapes} {self.attributes} -> {self.outputs}"


class Nodes(Case):
    """Runs nodes with gqac and with ONNX Runtime."""

    def ours(self, node):
        """The outputs of gqac for stored inputs."""
        folder = self.dir / "case"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "in").mkdir(parents=True)
        onnx.save(node.model(), folder / "node.onnx")
        for name, value in node.feeds().items():
            np.save(folder / "in" / f"{name}.npy", value)
        self.check(gqac("run", folder / "node.onnx", "--inputs", folder / "in", "--output",
                        folder / "out", "-q"), 0)
        return [np.load(folder / "out" / f"{n}.npy") for n in node.outputs if n]

    def compare(self, make, least, limit=LIMIT, count=COUNT):
        """Random nodes of `make`; at least `least` of them must have been accepted by both.
        Integers must be equal."""
        rng, pick = np.random.default_rng(SEED), random.Random(SEED)
        taken = 0
        for number in range(count):
            node = make(rng, pick)
            expected = node.peer()
            if expected is None:
                continue
            taken += 1
            got = self.ours(node)
            for name, x, y in zip([n for n in node.outputs if n], got, expected):
                self.assertEqual(x.shape, y.shape, f"case {number} {name}: {node}")
                self.assertEqual(x.dtype, y.dtype, f"case {number} {name}: {node}")
                off = relative(x, y) if y.dtype.kind == "f" else np.count_nonzero(x != y)
                self.assertLessEqual(off, limit, f"case {number} {name}: {node}")
        print(f"{taken} of {count} compared")
        self.assertGreaterEqual(taken, count * least)


def floats(rng, *shape):
    """Standard normal float32."""
    return rng.standard_normal(shape).astype(np.float32)
