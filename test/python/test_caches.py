#!/usr/bin/env python3
"""Decoders whose caches do not have the form of a past and a present of one head size, as
sequences.

Each kind of caches.py is computed by ONNX Runtime in one call, in chunks and token by token. The
logits of `score` must be close to all of them, and `equiv` must find no differing bit. Writes of
rows in another order, and masks that allow keys after a query, are refused.
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import caches
import harness
from harness import FULL, Case, write_ids

TOKENS = 40
LIMIT = 3e-6  # of max|logit|
FLIPPED = .1  # where sums in another order let a number be rounded to the next code


def present_of(past):
    """The result that is the past of the next call."""
    return past.replace("past_key_values", "present").replace("past_", "present_")


def oracle(model, ids, chunks):
    """ONNX Runtime's logits [N,V], in calls of `step` tokens."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if model.graph.name.startswith("quantised"):  # else it replaces products by integer ones
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in session.get_inputs()}
    heads = caches.HEADS if model.graph.name.startswith("folded") else caches.KV_HEADS
    pasts = {n: np.zeros([{"B": 1, "BH": heads, "P": 0}.get(d, d) for d in s], np.float32)
             for n, s in shapes.items() if n.startswith("past")}
    names, at, rows = [o.name for o in session.get_outputs()], 0, []
    for n in chunks:
        places = np.arange(at, at + n)
        feed = {"input_ids": ids[None, at:at + n],
                "position_ids": places[:1] if shapes.get("position_ids") == [1] else places[None],
                "cache_position": places if shapes.get("cache_position", [1]) else places[0],
                "attention_mask": np.ones((1, at + n), np.int64), **pasts}
        feed = {k: np.asarray(v) for k, v in feed.items() if k in shapes}
        results = dict(zip(names, session.run(None, feed), strict=True))
        rows.append(results["logits"][0])
        pasts = {past: results[present_of(past)] for past in pasts}
        at += n
    return np.concatenate(rows)


class Caches(Case):
    """One decoder of each kind."""

    def setUp(self):
        super().setUp()
        self.ids = np.array([(i * 37 + i // 7 * 5 + 11) % caches.VOCABULARY for i in range(TOKENS)])
        self.file = write_ids(self.dir / "ids.txt", self.ids)
        self.path = self.dir / "model.onnx"

    def score(self, model):
        """The logits of one sequence."""
        onnx.save(model, self.path)
        self.good("score", self.path, "--ids", self.file, "--logits", self.dir / "logits.npy", "-q")
        return np.load(self.dir / "logits.npy")

    def whole(self, kind, **how):
        """The logits equal ONNX Runtime's, however the tokens are split, and no bit differs."""
        model = caches.Caches(kind, **how).model()
        found = self.score(model)
        oracles = [oracle(model, self.ids, chunks)
                   for chunks in ([TOKENS], [7, 19, TOKENS - 26], [1] * TOKENS)]
        limit = FLIPPED if kind.startswith("quantised") else LIMIT
        for expected in oracles:
            self.close(found, expected, limit, kind)
        self.assertLessEqual(min(harness.relative(found, expected) for expected in oracles), LIMIT, kind)
        plans = "all" if FULL else "random:4"
        for batch in (1, 3):
            proof = self.good("equiv", self.path, "--ids", self.file, "--splits", plans, "--batch",
                              batch, "--threads", "1,2", "--format", "json", "-q").json()
            self.assertEqual(proof["differing"], 0, (kind, batch))
            self.assertGreater(proof["compared"], 2 * TOKENS * caches.VOCABULARY)
        self.good("equiv", self.path, "--ids", self.file, "--splits", "7,9", "--via", "import", "-q")
        mixing = self.good("inspect", self.path, "--invariance", "--format", "json").json()
        self.assertEqual(mixing["mixing"], [], kind)

    def refused(self, model, *words):
        """Sequences are refused with these words."""
        onnx.save(model, self.path)
        self.check(harness.gqac("score", self.path, "--ids", self.file), 3, *words)

    def test_batch_of_one(self):
        """Exports of StaticCache have a constant batch."""
        self.whole("transposed", batch=1)

    def test_one_start(self):
        """Only the position of the first row is an input; the others are counted from it."""
        self.whole("transposed", start=True)

    def test_artefact(self):
        """A compiled file returns the same logits."""
        for kind in ("latent", "compressed", "transposed", "rows_first", "batch_of_heads", "joined_turned"):
            found = self.score(caches.Caches(kind).model())
            self.good("compile", self.path, "-o", self.dir / "m.gqac")
            self.good("score", self.dir / "m.gqac", "--ids", self.file, "--splits", "7,20",
                      "--logits", self.dir / "compiled.npy", "-q")
            self.assertTrue(np.array_equal(found, np.load(self.dir / "compiled.npy")), kind)

    def test_artefact_of_calls(self):
        """`run` of the artefact equals `run` of the file for a call that writes elsewhere than a
        sequence would."""
        model = caches.Caches("transposed").model()
        onnx.save(model, self.path)
        folder = self.dir / "in"
        folder.mkdir()
        random = np.random.default_rng(5)
        feed = {"input_ids": self.ids[None, :3], "cache_position": np.array([9, 2, 30])}
        feed |= {f"past_key_values.{i}.{n}": random.standard_normal(
            (1, caches.KV_HEADS, caches.ROWS, caches.SIZE)).astype(np.float32)
                 for i in range(caches.LAYERS) for n in ("key", "value")}
        for name, value in feed.items():
            np.save(folder / f"{name}.npy", value)
        session = ort.InferenceSession(model.SerializeToString(),
                                       providers=["CPUExecutionProvider"])
        expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed),
                            strict=True))
        self.good("run", self.path, "--inputs", folder, "--output", self.dir / "out", "-q")
        for name, value in expected.items():
            self.close(np.load(self.dir / "out" / f"{name}.npy"), value, LIMIT, name)

    def test_pairs_of_latents(self):
        """A sequence stores what attention reads; inspect names the caches of the file."""
        onnx.save(caches.Caches("compressed").model(), self.path)
        text = self.good("compile", self.path, "--dump", "stateful", "--stop-after",
                         "stateful").out
        for name in ("key.expanded", "key.expanded.1"):
            self.assertIn(f'past="past_key_values.0.{name}"', text)

    def test_names(self):
        """A sequence keeps the names of pasts and presents whose axes it reorders, and inspect
        finds them."""
        for kind, names in (("columns", ("past_key_values.0.key", "present.0.key")),
                            ("heads_together", ("past_key_values.1.value", "present.1.value")),
                            ("joined_halves", ("past_1.value", "present_1.value")),
                            ("key_value_slices", ("past_key_values.1.key_value.value", "present.1.key_value.value")),
                            ("multi_query_eager", ("past_key_values.0.key_value.key", "present.0.key_value.key"))):
            onnx.save(caches.Caches(kind).model(), self.path)
            text = self.good("compile", self.path, "--dump", "stateful", "--stop-after", "stateful").out
            heads = {"key_value_slices": caches.HEADS, "multi_query_eager": 1}.get(kind, caches.KV_HEADS)
            size = caches.WIDE if kind == "key_value_slices" else caches.SIZE
            self.assertIn('past="{}", present="{}", heads={}, head_size={}'.format(*names, heads, size), text)
            pairs = self.good("inspect", self.path, "--kv", "--format", "json").json()["kv_pairs"]
            self.assertIn(names, [(p["past"], p["present"]) for p in pairs])
            if ".key_value." in names[0]:
                found = next(p for p in pairs if p["past"] == names[0])
                self.assertEqual((found["heads"], found["head_size"]), (heads, size))

    def test_run_keeps_the_form(self):
        """`run` uses pasts and presents in the form of the file, also for an artefact."""
        for kind in ("rows_first", "columns", "batch_of_heads", "joined_turned"):
            model = caches.Caches(kind).model()
            feed = self.fed(model, rows=5, new=3)
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))
            self.good("compile", self.path, "-o", self.dir / "m.gqac")
            for path in (self.path, self.dir / "m.gqac"):
                self.good("run", path, "--inputs", self.dir / "in", "--output", self.dir / "out", "-q")
                for name, value in expected.items():
                    self.close(np.load(self.dir / "out" / f"{name}.npy"), value, LIMIT, (kind, name))

    def fed(self, model, rows, new):
        """Saves the model and the inputs of one sequence with random cached rows; returns the
        inputs."""
        random, lengths = np.random.default_rng(7), {"B": 1, "BH": caches.KV_HEADS, "P": rows}
        feed = {"input_ids": self.ids[None, :new], "attention_mask": np.ones((1, rows + new), np.int64),
                "position_ids": np.arange(rows, rows + new)[None]}
        for i in model.graph.input:
            if i.name.startswith("past"):
                shape = [lengths.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]
                feed[i.name] = random.standard_normal(shape).astype(np.float32)
        onnx.save(model, self.path)
        (self.dir / "in").mkdir(exist_ok=True)
        for file in (self.dir / "in").iterdir():
            file.unlink()
        for name, value in feed.items():
            np.save(self.dir / "in" / f"{name}.npy", value)
        return feed

    def test_refused_in_front(self):
        """New rows before the cached ones."""
        for kind in ("rows_before_heads", "joined", "multi_query", "key_value_heads"):
            model = caches.Caches(kind).model()
            node = appended(model)
            node.input[0], node.input[1] = node.input[1], node.input[0]
            self.refused(model, "past")

    def test_refused_swapped(self):
        """A present of values and keys for a past of keys and values."""
        model = caches.Caches("joined").model()
        node = next(n for n in model.graph.node if n.output[0] == "present_0")
        node.input[0], node.input[1] = node.input[1], node.input[0]
        self.refused(model, "past_0")

    def test_refused_added_to_products(self):
        """Products of queries and one shared key that baddbmm adds to ones or NaN, a mask of its own for each head, and
        products of another shape."""
        for change in (add_ones, add_nan, mask_heads, flatten_heads):
            model = caches.Caches("multi_query_eager", batch=1 if change == flatten_heads else "B").model()
            change(model)
            self.refused(model, "past_key_values.0.key_value")

    def test_name_of_start(self):
        """The first position may have another name, and then is no input of a sequence."""
        model = caches.Caches("start_input").model()
        expected = self.score(model)
        next(i for i in model.graph.input if i.name == "position_ids").name = "start"
        start_at(model, "start")
        self.assertTrue(np.array_equal(self.score(model), expected))

    def test_refused_start(self):
        """Positions counted from another number than that of the cached rows, or from one that another node reads."""
        for node in (helper.make_node("Shape", ["input_ids"], ["other"], start=1, end=2),
                     helper.make_node("Size", ["past_key_values.0.key"], ["other"])):
            model = caches.Caches("start_of_past").model()
            start_at(model, "other")
            if node.op_type == "Size":
                node.output[0] = "size"
                model.graph.node.insert(0, helper.make_node("Reshape", ["size", "first"], ["other"]))
                model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "first"))
            model.graph.node.insert(0, node)
            self.refused(model, "positions are counted from a number", "RotaryEmbedding")
        model = caches.Caches("start_input").model()
        model.graph.node.append(helper.make_node("Neg", ["position_ids"], ["read"]))
        model.graph.output.append(helper.make_tensor_value_info("read", onnx.TensorProto.INT64, None))
        self.refused(model, "position_ids")

    def test_refused_read_otherwise(self):
        """A past of keys and values that another node reads."""
        model = caches.Caches("joined").model()
        model.graph.node.insert(0, helper.make_node("Relu", ["past_0"], ["read"]))
        model.graph.output.append(helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT, None))
        self.refused(model, "past_0")

    def test_refused_of_all_rows(self):
        """Keys less their mean over all rows, which each call changes."""
        for kind in ("rows_before_heads", "rows_first"):
            model = caches.Caches(kind).model()
            node, nodes = appended(model), model.graph.node
            axis = onnx.helper.get_attribute_value(node.attribute[0])
            reader = next(n for n in nodes if node.output[0] in n.input)
            reader.input[0] = "centred"
            at = list(nodes).index(reader)
            nodes.insert(at, helper.make_node("Sub", [node.output[0], "mean"], ["centred"]))
            nodes.insert(at, helper.make_node("ReduceMean", [node.output[0], "rows"], ["mean"]))
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([axis]), "rows"))
            self.refused(model, "past_key_values.0.key")

    def test_rounded(self):
        """A sequence caches rounded rows, under other names where the file returns rows that it has not
        rounded."""
        for kind, names in (("quantised", ("key.rounded", "value.rounded")),
                            ("quantised_heads", ("key.rounded", "value"))):
            onnx.save(caches.Caches(kind).model(), self.path)
            text = self.good("compile", self.path, "--dump", "stateful", "--stop-after", "stateful").out
            for name in names:
                self.assertIn(f'past="past_key_values.0.{name}", present="present.0.{name}"', text)
            reasons = self.good("inspect", self.path, "--ops").out
            self.assertIn("in sequences it is raised", reasons)

    def test_refused_rounded(self):
        """Keys with a scale for each channel, scores that are not multiplied by the scale that divided them, and
        keys that another node reads."""
        for change in (by_channel, another_scale, read_otherwise):
            model = caches.Caches("quantised_heads").model()
            change(model)
            self.refused(model, "past_key_values.0.key", "attention op")

    def test_refused_centred(self):
        """Latent rows that are not expanded independently."""
        self.refused(caches.Caches("compressed", centred=True).model(), "past_key_values",
                     "not read by an attention op")

    def test_refused_reversed(self):
        """Rows that are written in another order."""
        model = caches.Caches("transposed").model()
        last = helper.make_node("Neg", ["cache_position"], ["turned"])
        model.graph.node.insert(0, last)
        for node in model.graph.node:
            if node.op_type == "Unsqueeze" and node.output[0] == scatter(model).input[1]:
                node.input[0] = "turned"
        self.refused(model, "past_key_values.0.key", "is written", "ScatterND", "DynamicCache")

    def test_refused_mask(self):
        """A mask that allows the row after a query's own, which the call may have written."""
        model = caches.Caches("scattered").model()
        for node in model.graph.node:
            if node.op_type == "LessOrEqual":
                two = helper.make_node("Mul", [node.input[1], "two"], ["doubled"])
                node.input[1] = "doubled"
        at = next(i for i, n in enumerate(model.graph.node) if n.op_type == "LessOrEqual")
        model.graph.node.insert(at, two)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(2), "two"))
        self.refused(model, "past_key_values.0.key", "is written", "ScatterND", "DynamicCache")

    def test_refused_added(self):
        """ScatterND that adds to the existing values."""
        model = caches.Caches("scattered").model()
        scatter(model).attribute.append(helper.make_attribute("reduction", "add"))
        self.refused(model, "past_key_values.0.key", "is written", "ScatterND", "DynamicCache")


def appended(model):
    """The node that appends to the first past."""
    return next(n for n in model.graph.node if n.op_type == "Concat" and len(n.input) == 2
                and n.input[0] in ("past_key_values.0.key", "past_key_values.0.key_value", "node.49"))


def start_at(model, name):
    """Lets RotaryEmbedding count from that value."""
    for node in model.graph.node:
        if node.op_type == "RotaryEmbedding":
            node.input[1] = name


def add_ones(model):
    """The zeros that baddbmm adds become ones."""
    node = next(n for n in model.graph.node if n.op_type == "ConstantOfShape")
    node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32)))


def add_nan(model):
    """The zeros become infinity times 0."""
    node = next(n for n in model.graph.node if n.op_type == "ConstantOfShape")
    node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.full(1, np.inf, np.float32)))
    product = next(n for n in model.graph.node if n.op_type == "Mul" and n.input[0] == node.output[0])
    product.input[1] = "nothing"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0), "nothing"))


def mask_heads(model):
    """The last head sees nothing but the first key."""
    four = {n.output[0] for n in model.graph.node if n.op_type == "Unsqueeze"}
    where = next(n for n in model.graph.node if n.op_type == "Where" and n.input[0] in four)
    heads = np.arange(caches.HEADS)[None, None, :, None] < caches.HEADS - 1
    model.graph.initializer.append(onnx.numpy_helper.from_array(heads, "heads"))
    at = list(model.graph.node).index(where)
    model.graph.node.insert(at, helper.make_node("And", [where.input[0], "heads"], ["masked"]))
    where.input[0] = "masked"


def flatten_heads(model):
    """Probabilities of one sequence become [S,H,T], so the mean over axis 1 of their product with values is that of
    the heads of a token."""
    nodes = model.graph.node
    softmax = next(n for n in nodes if n.op_type == "Softmax")
    view = next(n for n in nodes if n.op_type == "Reshape" and n.input[0] == softmax.output[0])
    product = next(n for n in nodes if n.op_type == "MatMul" and n.input[0] == view.output[0])
    length = helper.make_node("Shape", [softmax.output[0]], ["length"], start=3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, caches.HEADS]), "rows"))
    at = list(nodes).index(view)
    nodes.insert(at, helper.make_node("Concat", ["rows", "length"], ["flat_shape"], axis=0))
    nodes.insert(at, length)
    view.input[1] = "flat_shape"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "heads_axis"))
    mean = helper.make_node("ReduceMean", [product.output[0], "heads_axis"], ["mean"], keepdims=1)
    rest = helper.make_node("Sub", [product.output[0], "mean"], ["rest"])
    for node in nodes:
        if node.input and node.input[0] == product.output[0]:
            node.input[0] = "rest"
    at = list(nodes).index(product) + 1
    nodes.insert(at, rest)
    nodes.insert(at, mean)


def scored(model):
    """The nodes that round keys to codes and back, and the scores of the first layer."""
    nodes = model.graph.node
    readers = {n.input[0]: n for n in nodes}
    key = next(n for n in nodes if n.op_type == "Transpose" and n.input[0] == "present.0.key")
    there = readers[readers[key.output[0]].output[0]]
    back = readers[there.output[0]]
    product = next(n for n in nodes if n.op_type == "MatMul" and n.input[1] == back.output[0])
    return there, back, readers[readers[product.output[0]].output[0]]


def by_channel(model):
    """Keys [B,H,D,T] with a scale for each of D."""
    scale = np.linspace(.05, .07, caches.SIZE, dtype=np.float32)
    for name, value in (("scales", scale), ("zeros", np.zeros(caches.SIZE, np.int8))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    for node in scored(model)[:2]:
        node.input[1:] = ["scales", "zeros"]
        node.attribute.append(helper.make_attribute("axis", 2))


def another_scale(model):
    """Scores that are multiplied by another scale than they were divided by."""
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(.125), "scale"))
    scored(model)[2].input[1] = "scale"


def read_otherwise(model):
    """Keys that another node reads before they are rounded."""
    model.graph.node.append(helper.make_node("Relu", ["present.0.key"], ["read"]))
    model.graph.output.append(helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT, None))


def scatter(model):
    """The node that writes the first buffer."""
    return next(n for n in model.graph.node if n.op_type == "ScatterND")


def add_tests():
    """Adds a method for each kind."""
    for kind in caches.KINDS:
        def test(self, kind=kind):
            self.whole(kind)
        setattr(Caches, f"test_{kind}", test)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
