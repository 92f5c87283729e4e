#!/usr/bin/env python3
"""Sessions of ONNX Runtime with models that gqac can run only in part: the provider claims the
largest convex sets of nodes that are worth it, and the CPU provider runs the rest.

The claimed nodes follow from the context model, which has an EPContext node for each set. Results
are compared with those of the CPU provider within a tolerance and, if gqac runs all attention and
products, bit by bit between one call and several.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import FULL, MODELS, model
from ort_sessions import Sessions, read, session, since, start, warnings
from test_ort_graph import made

UNKNOWN = "Asinh"  # gqac does not support it; the CPU provider computes each element separately
RESIDUAL = "/model/layers.0/mlp/down_proj/MatMul/output_0"  # in the model llama
HIDDEN = "/model/layers.2/final_norm_layernorm/output_0"
GATE = "/model/layers.1/mlp/gate_proj/MatMul/output_0"
MASK = "/model/attn_mask_reformat/attn_mask_subgraph/Sub/output_0"
LENGTHS = "/model/attn_mask_reformat/attn_mask_subgraph/Sub/Cast/output_0"


def unknown(name, value):
    """Nodes that gqac cannot run, from value `name` to `value`."""
    return [helper.make_node(UNKNOWN, [name], [value], name="/unknown/" + value)]


def llama(*values, replace=unknown):
    """The model llama; the readers of each of these values read the output of `replace` instead."""
    changed = onnx.load(model("llama"))
    nodes = changed.graph.node
    for value in values:
        at = next(i for i, node in enumerate(nodes) if value in node.output)
        for node in nodes:
            for i, name in enumerate(node.input):
                if name == value:
                    node.input[i] = value + "/changed"
        more = replace(value, value + "/changed")
        for node in reversed(more):
            nodes.insert(at + 1, node)
    return changed


def branches(name, *ops):
    """The branches of an If that read the value directly: each has one op."""
    graphs = [helper.make_graph([helper.make_node(op, [name], ["b"])], op, [],
                                [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])
              for op in ops]
    return dict(zip(("then_branch", "else_branch"), graphs, strict=True))


def branch(name, value):
    """An If that gqac cannot run because of the branch that is taken."""
    more = [value + end for end in ("/max", "/limit", "/less")]
    return [helper.make_node("ReduceMax", ["input_ids"], more[:1], keepdims=0),
            helper.make_node("Constant", [], more[1:2], value_int=1000),
            helper.make_node("Less", more[:2], more[2:]),
            helper.make_node("If", more[2:], [value], **branches(name, UNKNOWN, "Neg"))]


def cast(name, value):
    """A type that gqac does not support."""
    return [helper.make_node("Cast", [name], [value + "/text"], to=TensorProto.STRING),
            helper.make_node("Cast", [value + "/text"], [value], to=TensorProto.INT64)]


class Parts(Sessions):
    """The claimed nodes, and the results of the CPU provider."""

    def claimed(self, source):
        """The number of claimed sets, and the ops of all other nodes."""
        path = self.dir / f"c{len(list(self.dir.iterdir()))}.onnx"
        session(source, alone=False, optimise=False,
                settings={"ep.context_enable": "1", "ep.context_file_path": str(path)})
        if not path.exists():  # nothing is claimed
            return 0, None
        ops = [node.op_type for node in onnx.load(path).graph.node]
        self.context = path
        return ops.count("EPContext"), sorted(op for op in ops if op != "EPContext")

    def peer(self, source):
        """A session with only the CPU provider."""
        ort = start()
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        return ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])


class Decoders(Parts):
    """The model llama with nodes that gqac cannot run."""

    def decode(self, opened, ids, pieces):
        """The logits of all positions and the last presents, from calls of these lengths."""
        names, logits, at = [o.name for o in opened.get_outputs()], [], 0
        found = {}
        size = read(MODELS / "llama" / "ref" / "hybrid" / "inputs")["past_key_values.0.key"].shape[3]
        pasts = {i.name: np.zeros((1, 2, 0, size), np.float32) for i in opened.get_inputs()
                 if i.name.startswith("past")}
        for n in pieces:
            feeds = {"input_ids": ids[:, at:at + n], "attention_mask": np.ones((1, at + n), np.int64)}
            found = dict(zip(names, opened.run(None, feeds | pasts), strict=True))
            logits.append(found.pop("logits"))
            pasts = {name: found[name.replace("past_key_values", "present")] for name in pasts}
            at += n
        return [np.concatenate(logits, axis=1), *(found[name] for name in sorted(found))]

    def check(self, changed, sets, rest):
        """The sets are claimed and `rest` is not; the results and their bits."""
        source = changed.SerializeToString()
        self.assertEqual(self.claimed(source), (sets, rest))
        ids = np.random.default_rng(4).integers(3, 250, (1, 24))
        opened = session(source, alone=False)
        whole = self.decode(opened, ids, [24])
        for want, got in zip(self.decode(self.peer(source), ids, [24]), whole, strict=True):
            self.close(got, want, 1e-4)
        with warnings() as said:
            loaded = session(str(self.context), alone=False)
        self.assertNotIn("depend on how", said[0])
        for again in (opened, loaded):
            for pieces in ([24], [11, 1, 12], [1] * 24 if FULL else [23, 1]):
                for want, got in zip(whole, self.decode(again, ids, pieces), strict=True):
                    self.assertEqual(got.tobytes(), want.tobytes(), pieces)

    def test_between_layers(self):
        """Two sets: the layers before the node, and those after it."""
        self.check(llama(RESIDUAL), 2, [UNKNOWN])

    def test_tail(self):
        """All layers are one set. The product with the small vocabulary is not worth a set."""
        self.check(llama(HIDDEN), 1, [UNKNOWN, "MatMul"])

    def test_branch(self):
        """A node after the product of the gate: all nodes that do not depend on it are one set, and
        the rest is not worth one."""
        self.check(llama(GATE), 1, sorted([UNKNOWN, "Sigmoid", "Mul", "Mul", "MatMul", "MatMul",
                                           "SkipSimplifiedLayerNormalization"]))

    @since(31, "cannot load context models whose nodes EPContext output what only an If reads")
    def test_if(self):
        """An If is refused as a whole; the outer values that it reads are outputs of a set."""
        self.check(llama(RESIDUAL, replace=branch), 2, ["If", "Less", "ReduceMax"])

    def test_type(self):
        """Nodes that read and write a type that gqac does not support."""
        self.check(llama(MASK, replace=cast), 1, ["Cast", "Cast", "ReduceSum", "Sub"])

    def test_attribute(self):
        """A supported op with an attribute that gqac refuses: attention of the second layer."""
        changed = llama()
        last = [n for n in changed.graph.node if n.op_type == "GroupQueryAttention"][1]
        for attribute in last.attribute:
            if attribute.name == "local_window_size":
                last.attribute.remove(attribute)
        last.attribute.append(helper.make_attribute("local_window_size", 0))
        source = changed.SerializeToString()
        sets, rest = self.claimed(source)
        self.assertEqual((sets, rest.count("GroupQueryAttention"), rest.count("MatMul")), (1, 1, 5))
        ids = np.random.default_rng(4).integers(3, 250, (1, 24))
        found, want = (self.decode(each, ids, [11, 1, 12])
                       for each in (session(source, alone=False), self.peer(source)))
        for x, y in zip(found, want, strict=True):
            self.close(x, y, 1e-4)


class Small(Parts):
    """Graphs without attention: which sets are worth it, and which values cross their borders."""

    def test_paying(self):
        """A set with a product with 1 MiB of weights is claimed, a smaller one is not, and tables
        from which rows are read do not count."""
        def product(columns):
            weights = numpy_helper.from_array(np.ones((512, columns), np.float32), "w")
            return made([helper.make_node("MatMul", ["x", "w"], ["z"]), *unknown("z", "y")],
                        [("x", TensorProto.FLOAT, ["N", 512])],
                        [("y", TensorProto.FLOAT, ["N", columns])], [weights])

        table = numpy_helper.from_array(np.ones((4096, 128), np.float32), "w")
        rows = made([helper.make_node("Gather", ["w", "x"], ["z"]), *unknown("z", "y")],
                    [("x", TensorProto.INT64, ["N"])], [("y", TensorProto.FLOAT, ["N", 128])],
                    [table])
        for source, sets in ((product(512), 1), (product(511), 0), (rows, 0)):
            self.assertEqual(self.claimed(source)[0], sets)
            with warnings() as said:
                session(source, alone=False)
            words = "runs 1 of 2 nodes of this model, in 1 part: " if sets else \
                "runs nothing of this model: "
            self.assertIn(words, said[0])
            self.assertIn(f"{UNKNOWN}: unknown op ('/unknown/y')", said[0])
            with self.assertRaisesRegex(Exception, "fallback"):
                session(source)

    def random_model(self, rng):
        """Products, sums, splits, branches and nodes that gqac cannot run, between values [N,512]."""
        def make(op, *inputs, n=1, **attributes):
            out = [f"n{len(nodes)}_{i}" for i in range(n)]
            nodes.append(helper.make_node(op, inputs, out, **attributes))
            return out

        values, nodes = ["x"], []
        for _ in range(int(rng.integers(4, 20))):
            a, b = (values[int(i)] for i in rng.integers(max(0, len(values) - 6), len(values), 2))
            kind = rng.integers(7)
            if kind < 2:
                values += make("MatMul", a, "w")
            elif kind == 2:
                values += make("Add", a, b)
            elif kind == 3:
                values += make("Concat", *make("Split", a, n=2, axis=1)[::-1], axis=1)
            elif kind == 4:
                values += make("If", "c", **branches(a, "Neg", "Relu"))
            else:
                values += make(UNKNOWN, a)
        read_by = {name for node in nodes for name in node.input}
        chosen = [v for v in values[1:] if v not in read_by or rng.integers(4) == 0]
        weights = rng.standard_normal((512, 512), np.float32) / 23
        return made(nodes, [("x", TensorProto.FLOAT, ["N", 512]), ("c", TensorProto.BOOL, [])],
                    [(v, TensorProto.FLOAT, ["N", 512]) for v in chosen],
                    [numpy_helper.from_array(weights, "w")], opset=13)

    def test_random(self):
        """Random graphs: values that a set reads, and its values that others read."""
        seen = set()
        for seed in range(150 if FULL else 12):
            rng = np.random.default_rng(seed)
            source = self.random_model(rng)
            seen.add(self.claimed(source)[0])
            feeds = {"x": rng.standard_normal((3, 512), np.float32), "c": np.array(False)}
            found, want = (opened.run(None, feeds)
                           for opened in (session(source, alone=False), self.peer(source)))
            for a, b in zip(found, want, strict=True):
                self.close(a, b, 1e-4)
        self.assertGreaterEqual(len(seen), 3, seen)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
