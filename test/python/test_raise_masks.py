#!/usr/bin/env python3
"""Masks of attention in simple ops: recognised masks become attributes, others stay unchanged.

Each test makes a small file, and numpy computes the expected result.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import harness
from harness import Case

LIMIT = 2e-5
MASK = "Attention mask"  # a mask that is not recognised: Attention is raised, with the mask as a
                         # tensor
LOW = np.float32(np.finfo(np.float32).min)
node = onnx.helper.make_node


def constant_of(value):
    """The values of an initializer: floats as f32, integers as i64."""
    value = np.asarray(value)
    if value.dtype == np.float64:
        value = value.astype(np.float32)
    return value


def save(path, nodes, inputs, outputs, consts, opset=18):
    """Writes a model; inputs and outputs are (name, dtype, dims)."""
    graph = onnx.helper.make_graph(
        nodes, "masks", [onnx.helper.make_tensor_value_info(*i) for i in inputs],
        [onnx.helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(constant_of(v), n) for n, v in consts.items()])
    onnx.save(onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10), path)


class Masks(Case):
    """One attention with a mask that is added to the scores."""

    def attention(self, nodes, consts, mask=None, queries="S", behind=None, kind=np.float32):
        """Writes the file; `nodes` compute the value `mask`, or it is an input with those dims."""
        tensor = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        inputs = [("q", tensor, ["B", 2, queries, 4]), ("k", tensor, ["B", 2, "T", 4]),
                  ("v", tensor, ["B", 2, "T", 4])]
        inputs += [("mask", 1, mask)] if mask else []
        inputs += [("attention_mask", TensorProto.INT64, ["B", "T"])] if any(
            "attention_mask" in n.input for n in nodes) else []
        nodes = nodes + [
            node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["scores"], name="product"),
            node("Add", ["scores", "mask"], ["masked"], name="add"),
            node("Identity" if behind is None else "Mul",
                 ["masked"] if behind is None else ["masked", "behind"], ["scaled"]),
            node("Softmax", ["scaled"], ["weights"], axis=-1),
            node("MatMul", ["weights", "v"], ["y"], name="root")]
        save(self.dir / "m.onnx", nodes, inputs, [("y", tensor, None)],
             {"behind": kind(behind or 1), **consts})

    def feed(self, queries, keys, size=1.0):
        """Random queries, keys and values."""
        rng = np.random.default_rng(4)
        return {n: (rng.standard_normal((2, 2, rows, 4)) * by).astype(np.float32)
                for n, rows, by in (("q", queries, size), ("k", keys, size), ("v", keys, 1))}

    def gives(self, feed, added, **more):
        """The file returns what numpy computes with that mask added to the scores."""
        folder = self.dir / "in"
        folder.mkdir(exist_ok=True)
        for key, value in {**feed, **more}.items():
            np.save(folder / f"{key}.npy", value)
        self.good("run", self.dir / "m.onnx", "--inputs", folder, "-o", self.dir / "out", "-q")
        scores = feed["q"].astype(np.float64) @ feed["k"].swapaxes(2, 3) + added
        p = np.exp(scores - scores.max(-1, keepdims=True))
        self.close(np.load(self.dir / "out" / "y.npy"), p / p.sum(-1, keepdims=True) @ feed["v"],
                   LIMIT, "y")

    def told(self):
        """What was raised, and what was not, with the reason."""
        info = self.good("inspect", self.dir / "m.onnx", "--ops", "--format", "json").json()
        return info["raised"], [(n["what"], n["reason"]) for n in info["not_raised"]]

    def test_one_column(self):
        """A mask of any length may have one column, which applies to all keys."""
        self.attention([], {}, ["B", 1, 1, "M"])
        rng = np.random.default_rng(1)
        for columns in (1, 5):
            mask = rng.standard_normal((2, 1, 1, columns)).astype(np.float32)
            self.gives(self.feed(3, 5), mask, mask=mask)
        raised, told = self.told()
        self.assertEqual((raised, [n[0] for n in told]), ({"Attention": 1}, [MASK]))

    def test_column_for_each_key(self):
        """A mask with as many columns as there are keys is passed on unchanged."""
        for rows, n in (("S", 3), (1, 1)):
            self.attention([], {}, ["B", 1, rows, "T"])
            mask = np.random.default_rng(1).standard_normal((2, 1, n, 5)).astype(np.float32)
            self.gives(self.feed(3, 5), mask, mask=mask)
            raised, told = self.told()
            self.assertEqual((raised, [n[0] for n in told]), ({"Attention": 1}, [MASK]))

    def test_more_rows(self):
        """One query, and a mask with more rows: they become rows of the result."""
        for queries, rows in ((1, "S"), ("S", "R")):
            self.attention([], {}, ["B", 1, rows, "T"], queries)
            mask = np.random.default_rng(1).standard_normal((2, 1, 3, 5)).astype(np.float32)
            self.gives(self.feed(1, 5), mask, mask=mask)
            raised, told = self.told()
            self.assertEqual((raised, [n[0] for n in told]), ({}, ["Attention"]))
            self.assertIn("other rows", told[0][1])

    def test_from_the_end(self):
        """A triangle sliced with a negative start: its last columns, not its first."""
        for start, keys in (("minus_keys", 5), ("minus_five", 5)):
            nodes = [node("Shape", ["q"], ["rows"], start=2, end=3),
                     node("Shape", ["k"], ["keys"], start=2, end=3),
                     node("Neg", ["keys"], ["minus_keys"]),
                     node("ConstantOfShape", ["big"], ["ones"],
                          value=numpy_helper.from_array(np.ones(1, np.float32))),
                     node("Trilu", ["ones"], ["triangle"], upper=0),
                     node("Slice", ["triangle", start, "end", "one"], ["columns"]),
                     node("Slice", ["columns", "zero", "rows", "zero"], ["part"]),
                     node("Equal", ["part", "none"], ["hidden"]),
                     node("Where", ["hidden", "low", "none"], ["mask"])]
            self.attention(nodes, {"big": [300, 300], "end": [1 << 62], "one": [1], "zero": [0],
                                   "minus_five": [-5], "none": np.float32(0), "low": LOW})
            self.gives(self.feed(3, keys), LOW)

    def two_masks(self, causal, padding):
        """The sum of masks for causality and padding with these numbers; the feed has large
        scores."""
        nodes = [node("Shape", ["q"], ["rows"], start=2, end=3),
                 node("Shape", ["k"], ["keys"], start=2, end=3),
                 node("Squeeze", ["rows"], ["n_rows"]), node("Squeeze", ["keys"], ["n_keys"]),
                 node("Range", ["zero", "n_rows", "one"], ["row"]),
                 node("Range", ["zero", "n_keys", "one"], ["column"]),
                 node("Unsqueeze", ["row", "last"], ["row2"]),
                 node("LessOrEqual", ["column", "row2"], ["seen"]),
                 node("Where", ["seen", "none", "causal"], ["mask0"]),
                 node("Cast", ["attention_mask"], ["here"], to=TensorProto.BOOL),
                 node("Where", ["here", "none", "padding"], ["mask1"]),
                 node("Unsqueeze", ["mask1", "middle"], ["mask2"]),
                 node("Add", ["mask0", "mask2"], ["mask"], name="sum")]
        self.attention(nodes, {"zero": 0, "one": 1, "last": [1], "middle": [1, 2],
                               "none": np.float32(0), "causal": np.float32(causal),
                               "padding": np.float32(padding)})
        here = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
        mask = np.where(np.tri(5), 0, causal) + np.where(here, 0, padding)[:, None, None]
        self.gives(self.feed(5, 5, 400), mask.astype(np.float64), attention_mask=here)
        return self.told()

    def test_sum_of_two(self):
        """Where only one of two masks hides, its own number must hide."""
        self.assertEqual([n[0] for n in self.two_masks(-1e5, -1e9)[1]], [MASK])
        self.assertEqual(self.two_masks(-1e9, -1e9), ({"Attention": 1}, []))

    def padded(self, low, causal):
        """A mask of padding, or of causality, whose weighted values are quantised with one scale
        for all rows; returns the result of the file for a row without visible keys, and that
        scale."""
        rows = [node("Shape", ["q"], ["rows"], start=2, end=3), node("Squeeze", ["rows"], ["n"]),
                node("Range", ["zero", "n", "one"], ["row"]),
                node("Unsqueeze", ["row", "last"], ["row2"]),
                node("LessOrEqual", ["row", "row2"], ["here"])] if causal else [
            node("Cast", ["attention_mask"], ["flat"], to=TensorProto.BOOL),
            node("Unsqueeze", ["flat", "middle"], ["here"])]
        self.attention([*rows, node("Where", ["here", "none", "low"], ["mask"])],
                       {"zero": 0, "one": 1, "last": [1], "middle": [1, 2],
                        "none": np.float32(0), "low": np.float32(low)})
        path = self.dir / "m.onnx"
        model = onnx.load(path)
        model.graph.node.append(node("DynamicQuantizeLinear", ["y"], ["codes", "scale", "least"],
                                     name="rounds"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("scale", 1, []))
        onnx.save(model, path)
        feed = self.feed(5, 5)
        feed["v"][1] *= 100
        added, more = np.where(np.tri(5), 0, low), {}
        if not causal:
            here = np.array([[1] * 5, [0] * 5])
            added, more = np.where(here, 0, low)[:, None, None], {"attention_mask": here}
        self.gives(feed, added.astype(np.float64), **more)
        y = np.load(self.dir / "out" / "y.npy")
        self.close(np.load(self.dir / "out" / "scale.npy"), (y.max() - y.min()) / 255, LIMIT)
        return self.told()

    def test_rows_together(self):
        """A row without visible keys stays the mean of all, if it affects the scale of other
        rows."""
        raised, told = self.padded(LOW, False)
        self.assertEqual((raised, [n[0] for n in told]), ({}, ["Attention"]))
        self.assertIn("mixes all rows", told[0][1])
        self.assertIn("for node 'rounds'", self.good("inspect", self.dir / "m.onnx", "--ops").out)
        self.assertEqual(self.padded(LOW, True), ({"Attention": 1}, []))

    def after(self, more, inputs=(), **consts):
        """An attention with padding on the left, and `more` nodes after its y [2,2,5,4], which
        compute z; returns what was raised, and the first note. The values of z are those without
        `raise`."""
        self.attention(
            [node("Cast", ["attention_mask"], ["flat"], to=TensorProto.BOOL),
             node("Unsqueeze", ["flat", "middle"], ["here"]),
             node("Where", ["here", "none", "low"], ["mask"])],
            {"middle": [1, 2], "none": np.float32(0), "low": LOW, **consts})
        path = self.dir / "m.onnx"
        model = onnx.load(path)
        model.graph.node.extend(more)
        model.graph.input.extend(onnx.helper.make_tensor_value_info(n, 1, v.shape)
                                 for n, v in inputs)
        model.graph.output[0].name = "z"
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        onnx.save(model, path)
        folder = self.dir / "in"
        folder.mkdir(exist_ok=True)
        mask = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])
        for name, value in {**self.feed(5, 5), "attention_mask": mask, **dict(inputs)}.items():
            np.save(folder / f"{name}.npy", value)
        z = []
        for raised in (["--disable", "raise"], []):
            self.good("compile", path, "--stateless", *raised, "-o", self.dir / "m.gqac")
            self.good("run", self.dir / "m.gqac", "--inputs", folder, "-o", self.dir / "z", "-q")
            z.append(np.load(self.dir / "z" / "z.npy"))
        raised, told = self.told()
        if not raised.get("Attention"):
            self.close(z[1], z[0], LIMIT, "z")
        return raised, told

    def test_rows_after(self):
        """A row without visible keys is unchanged if other rows depend on it."""
        flat = [node("Transpose", ["y"], ["turned"], perm=[0, 1, 3, 2]),
                node("Reshape", ["turned", "channels"], ["x"]),
                node("Conv", ["x", "w"], ["z"], group=8, pads=[3, 0], kernel_shape=[4],
                     name="takes")]
        rows = [node("Transpose", ["y"], ["turned"], perm=[0, 2, 1, 3]),
                node("Reshape", ["turned", "features"], ["x"])]
        turned = [node("Transpose", ["x"], ["xt"], perm=[0, 2, 1])]
        w = np.random.default_rng(5).standard_normal((8, 1, 4)).astype(np.float32)
        state = [("past_state.0", np.zeros((2, 2, 4, 4), np.float32))]
        conv = [("past_conv.0", np.zeros((2, 8, 3), np.float32))]
        for more, inputs, consts in (
                ([node("ReduceMax", ["y", "rows"], ["z"], keepdims=1, name="takes")], [],
                 {"rows": [2]}),
                (flat, [], {"w": w, "channels": [0, 8, -1]}),
                ([*rows, node("LinearAttention", ["x", "x", "x", state[0][0]],
                              ["z", "present_state.0"], domain="com.microsoft", q_num_heads=2,
                              kv_num_heads=2, update_rule="linear", name="takes")],
                 state, {"features": [0, 0, 8]}),
                ([*rows, *turned, node("CausalConvWithState", ["xt", "w", "", conv[0][0]],
                                       ["z", "present_conv.0"], domain="com.microsoft",
                                       name="takes")],
                 conv, {"w": w, "features": [0, 0, 8]})):
            raised, told = self.after(more, inputs, **consts)
            self.assertEqual((raised, [n[0] for n in told]), ({}, ["Attention"]), more[-1].op_type)
            self.assertIn("mixes all rows", told[0][1])
            self.assertIn("for node 'takes'",
                          self.good("inspect", self.dir / "m.onnx", "--ops").out)

    def test_rows_apart(self):
        """A later attention hides the row by its own mask, lengths do not depend on it, and earlier
        nodes do not read it."""
        second = [node("MatMul", ["y", "kt"], ["scores2"]),
                  node("Add", ["scores2", "mask"], ["masked2"]),
                  node("Softmax", ["masked2"], ["weights2"], axis=-1),
                  node("MatMul", ["weights2", "v"], ["z"], name="root2")]
        self.assertEqual(self.after(second), ({"Attention": 2}, []))
        count = [node("Shape", ["y"], ["length"], start=2, end=3),
                 node("ReduceMax", ["length", "first"], ["most"], keepdims=1),
                 node("Cast", ["most"], ["number"], to=1), node("Mul", ["y", "number"], ["z"])]
        self.assertEqual(self.after(count, first=[0])[0], {"Attention": 1})
        second[0].input[0] = "most"
        raised, told = self.after([node("ReduceMax", ["y", "rows"], ["most0"], keepdims=1),
                                    node("Add", ["most0", "q"], ["most"]), *second], rows=[2])
        self.assertEqual((raised, [n[0] for n in told]), ({"Attention": 1}, ["Attention"]))

    def test_places_of_16_bits(self):
        """Positions that a float type cannot represent are rounded to it."""
        for dtype, note in ((TensorProto.FLOAT, []), (TensorProto.FLOAT16, [MASK]),
                            (TensorProto.BFLOAT16, [MASK])):
            self.attention(
                [node("Shape", ["q"], ["rows"], start=2, end=3), node("Squeeze", ["rows"], ["n"]),
                 node("Range", ["zero", "n", "one"], ["whole"]),
                 node("Cast", ["whole"], ["row"], to=dtype),
                 node("Unsqueeze", ["row", "last"], ["row2"]),
                 node("LessOrEqual", ["row", "row2"], ["here"]),
                 node("Where", ["here", "none", "low"], ["mask"])],
                {"zero": 0, "one": 1, "last": [1], "none": np.float32(0), "low": LOW})
            at = np.arange(300).astype(np.float32)
            if dtype == TensorProto.BFLOAT16:  # to even
                bits = at.view(np.uint32)
                at = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
            self.gives(self.feed(300, 300), np.where(at <= at[:, None], 0, LOW).astype(np.float64))
            raised, told = self.told()
            self.assertEqual((raised, [n[0] for n in told]), ({"Attention": 1}, note))

    def packed(self, front, behind):
        """Causal within each run of positions that increase by 1; the notes. The positions are
        `front` followed by a count from 0, or repeated counts; the first one precedes all."""
        one = [node("Shape", ["q"], ["rows"], start=2, end=3), node("Squeeze", ["rows"], ["n"]),
               node("Add", ["rows", "one1"], ["rows1"]),
               node("Range", ["zero", "n", "one"], ["at"]),
               node("Concat", ["at", "front"] if behind else ["front", "at"], ["places"], axis=0),
               node("Slice", ["places", "zero1", "rows", "zero1"], ["before"]),
               node("Slice", ["places", "one1", "rows1", "zero1"], ["after"]),
               node("Sub", ["after", "before"], ["steps"]),
               node("Equal", ["steps", "one"], ["goes_on"]), node("Not", ["goes_on"], ["starts"]),
               node("Cast", ["starts"], ["start"], to=7),
               node("CumSum", ["start", "zero"], ["run"], name="sum"),
               node("Unsqueeze", ["run", "one1"], ["row_run"]),
               node("Equal", ["run", "row_run"], ["same_run"]),
               node("Unsqueeze", ["at", "one1"], ["row"]),
               node("LessOrEqual", ["at", "row"], ["seen0"]),
               node("And", ["seen0", "same_run"], ["seen"]),
               node("Where", ["seen", "none", "low"], ["mask"])]
        self.attention(one, {"zero": 0, "one": 1, "zero1": [0], "one1": [1], "front": front,
                             "none": np.float32(0), "low": LOW})
        n = 9
        places = np.r_[np.arange(n), front] if behind else np.r_[front, np.arange(n)]
        run = np.cumsum(places[1:n + 1] - places[:n] != 1)
        self.gives(self.feed(n, n), np.where(np.tri(n, dtype=bool) & (run == run[:, None]), 0,
                                             float(LOW)))
        return [n[0] for n in self.told()[1]]

    def test_packed(self):
        """Packed sequences, of which there is only one: causal. Positions that start again, or
        differ from those that were compared, are not treated so."""
        self.assertEqual(self.packed([-1], False), [])
        for front, behind in (([-2], False), ([-3, -2, -1], False), ([0, 1, 2], False),
                              ([-2, -1, 1], False), ([-1], True), ([5], True)):
            self.assertEqual(self.packed(front, behind),
                             [] if front == [-3, -2, -1] else [MASK], front)

    def test_scale_behind(self):
        """A scale after the mask also scales the number with which it hides. In f16 only the lowest
        number hides, and with a scale of 1/16 or more."""
        for kind, low, behind, raised in (
                (np.float32, -1e9, 0.01, {}), (np.float32, LOW, 0.01, {"Attention": 1}),
                (np.float16, -65504, 1 / 16, {"Attention": 1}), (np.float16, -65504, 1 / 17, {}),
                (np.float16, -65472, 1 / 2, {})):
            nodes = [node("Shape", ["q"], ["rows"], start=2, end=3),
                     node("Concat", ["rows", "rows"], ["shape"], axis=0),
                     node("ConstantOfShape", ["shape"], ["ones"],
                          value=numpy_helper.from_array(np.ones(1, kind))),
                     node("Trilu", ["ones"], ["triangle"], upper=0),
                     node("Equal", ["triangle", "none"], ["hidden"]),
                     node("Where", ["hidden", "low", "none"], ["mask"])]
            self.attention(nodes, {"none": kind(0), "low": kind(low)}, behind=behind, kind=kind)
            self.assertEqual(self.told()[0], raised, (low, behind))

    def test_many_ways(self):
        """Many paths to a node that is not a product: the search ends soon."""
        nodes = [node("Max", [f"m{i}"] * 100, [f"m{i + 1}"]) for i in range(6)]
        nodes += [node("Add", ["m6", "m0"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1),
                  node("MatMul", ["p", "v"], ["y"])]
        save(self.dir / "m.onnx", nodes, [("m0", 1, ["B", 2, "S", "T"]),
                                          ("v", 1, ["B", 2, "T", 4])], [("y", 1, None)], {})
        self.assertLess(self.good("inspect", self.dir / "m.onnx", "--ops").seconds, 10)


class Slopes(Case):
    """An Attention with linear biases, as a sequence."""

    def refused(self, heads, nodes, consts, kind=np.float32):
        """The status; `nodes` compute the value `mask` for four heads."""
        rng, width = np.random.default_rng(0), 16
        weights = {n: rng.standard_normal((width, width)).astype(kind)
                   for n in ("table", "wq", "wk", "wv", "wo")}
        tensor = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        past = ("past_key_values.0.key", "past_key_values.0.value")
        nodes = [node("Gather", ["table", "input_ids"], ["x"]),
                 *[node("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"],
                 node("Shape", ["attention_mask"], ["keys"], start=1, end=2), *nodes,
                 node("Attention", ["q", "k", "v", "mask", *past],
                      ["y", "present.0.key", "present.0.value"], q_num_heads=heads,
                      kv_num_heads=heads, is_causal=1, name="attention"),
                 node("MatMul", ["y", "wo"], ["l"]), node("Cast", ["l"], ["logits"], to=1)]
        save(self.dir / "m.onnx", nodes,
             [("input_ids", 7, ["B", "S"]), ("attention_mask", 7, ["B", "T"]),
              *[(n, tensor, ["B", heads, "P", width // heads]) for n in past]],
             [("logits", 1, ["B", "S", width]), ("present.0.key", tensor, None),
              ("present.0.value", tensor, None)], {**weights, **consts}, 23)
        (self.dir / "ids.txt").write_text(" ".join(map(str, rng.integers(0, width, 12))))
        got = harness.gqac("equiv", self.dir / "m.onnx", "--ids", self.dir / "ids.txt", "-q")
        self.assertIn(got.code, (0, 3), str(got))
        return got.code == 3

    def test_number_of_heads(self):
        """A table for two heads does not apply to four."""
        cut = [node("Slice", ["slopes", "zero", "keys", "axis"], ["mask"])]
        table = 0.5 ** np.arange(1, 5)[:, None, None] * np.arange(64)
        for heads, refused in ((4, False), (2, True)):
            consts = {"slopes": table[None, :heads], "zero": [0], "axis": [3]}
            self.assertEqual(self.refused(4, cut, consts), refused, heads)

    def test_halves(self):
        """Biases of keys may be rounded to f16. Biases of distances may not: without roundings, a
        softmax does not depend on the distance between two queries."""
        bias = [node("Squeeze", ["keys"], ["n"]), node("Range", ["zero", "n", "one"], ["at"]),
                node("Sub", ["at", "from"], ["far"]), node("Cast", ["far"], ["place"], to=1),
                node("Mul", ["slopes", "place"], ["bias"])]
        consts = {"zero": 0, "one": 1, "slopes": 0.93 * 0.5 ** np.arange(4).reshape(1, 4, 1, 1)}
        for first, last in (("zero", "zero"), ("n", "one")):
            start = [node("Sub", [first, last], ["from"])]
            for kind, tensor in ((np.float32, 1), (np.float16, 10)):
                nodes = bias[:1] + start + bias[1:] + [node("Cast", ["bias"], ["mask"], to=tensor)]
                self.assertEqual(self.refused(4, nodes, consts, kind),
                                 first == "n" and kind == np.float16, (first, kind))


class Tables(Case):
    """A mask that is sliced from a table of booleans, as in GPT-Neo."""

    def raised(self, table):
        """The text of the raised graph, which computes the result of the file, and its notes."""
        rows = len(table)
        consts = {"table": table[None, None], "zero": [0, 0], "axes": [2, 3],
                  "low": np.float32(-3.4e38)}
        consts = [numpy_helper.from_array(np.array(x), n) for n, x in consts.items()]
        nodes = [node("Shape", ["q"], ["length"], start=2, end=3),
                 node("Concat", ["length", "length"], ["ends"], axis=0),
                 node("Slice", ["table", "zero", "ends", "axes"], ["seen"], name="cut"),
                 node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
                 node("MatMul", ["q", "kt"], ["scores"]),
                 node("Where", ["seen", "scores", "low"], ["masked"]),
                 node("Softmax", ["masked"], ["weights"], axis=-1),
                 node("MatMul", ["weights", "v"], ["y"], name="root")]
        def io(name):
            return onnx.helper.make_tensor_value_info(name, 1, [1, 2, "S", 8])
        graph = onnx.helper.make_graph(nodes, "table", [io("q"), io("k"), io("v")], [io("y")],
                                       consts)
        path, folder = self.dir / "table.onnx", self.dir / "in"
        onnx.save(onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), path)
        folder.mkdir(exist_ok=True)
        feed = dict(zip("qkv", np.random.default_rng(2).standard_normal(
            (3, 1, 2, rows - 2, 8)).astype(np.float32)))
        for key, value in feed.items():
            np.save(folder / f"{key}.npy", value)
        self.good("run", path, "--inputs", folder, "-o", self.dir / "out", "-q")
        scores = feed["q"] @ feed["k"].swapaxes(2, 3)
        p = np.exp(np.where(table[:rows - 2, :rows - 2], scores, -np.inf))
        self.close(np.load(self.dir / "out" / "y.npy"),
                   p / p.sum(-1, keepdims=True) @ feed["v"], LIMIT, "y")
        self.good("compile", path, "--stateless", "--stop-after", "raise", "--emit", "text", "-o",
                  self.dir / "m.gq")
        told = self.good("inspect", path, "--ops", "--format", "json").json()["not_raised"]
        return (self.dir / "m.gq").read_text(), [(n["what"], n["stopped_by"]) for n in told]

    def test_triangle(self):
        """Each position up to its own: causal."""
        text, told = self.raised(np.tri(12, dtype=bool))
        self.assertIn("is_causal=1", text)
        self.assertNotIn("window", text)
        self.assertEqual(told, [])

    def test_window(self):
        """The last few keys: a window to the left."""
        text, told = self.raised(np.tri(12, dtype=bool) & ~np.tri(12, k=-4, dtype=bool))
        self.assertIn("is_causal=1", text)
        self.assertIn("left_window_size=3", text)
        self.assertEqual(told, [])

    def test_hole(self):
        """One boolean of it altered: not recognised; and a slice of unknown length."""
        table = np.tri(12, dtype=bool)
        table[7, 3] = False
        text, told = self.raised(table)
        self.assertNotIn("is_causal=1", text)
        self.assertEqual(told, [("Attention", "cut")])


class Shared(Case):
    """A mask that many layers share."""

    def test_unreadable_mask(self):
        """The search for it ends once, not for each layer: the work allowed for masks is left for
        the next one."""
        layers, hard = 300, 40
        nodes = [node("Range", ["zero", "length", "one"], ["at"]),
                 node("Unsqueeze", ["at", "axis"], ["row"]),
                 node("LessOrEqual", ["at", "row"], ["m0"]),
                 node("Less", ["at", "row"], ["m1"])]
        nodes += [node("And", [f"m{i}", f"m{i + 1}"], [f"m{i + 2}"]) for i in range(hard)]
        masks = [f"m{hard + 1}"] * layers + ["m0"]
        nodes += [node("Attention", [f"x{i}", "k", "v", mask], [f"x{i + 1}"])
                  for i, mask in enumerate(masks)]
        values = {"zero": 0, "one": 1, "axis": [1]}
        consts = [numpy_helper.from_array(np.array(x, np.int64), n) for n, x in values.items()]
        first = node("Shape", ["x0"], ["shape"], start=2, end=3)
        flat = node("Squeeze", ["shape"], ["length"])
        def io(name):
            return onnx.helper.make_tensor_value_info(name, 1, [1, 2, "S", 8])
        graph = onnx.helper.make_graph([first, flat] + nodes, "shared",
                                       [io("x0"), io("k"), io("v")], [io(f"x{len(masks)}")], consts)
        path = self.dir / "shared.onnx"
        onnx.save(onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11), path)
        self.good("compile", path, "--stop-after", "raise", "--emit", "text", "-o",
                  self.dir / "m.gq")
        text = (self.dir / "m.gq").read_text()
        self.assertEqual((text.count(" = Attention "), text.count("is_causal=1")), (layers + 1, 1))


if __name__ == "__main__":
    sys.exit(harness.main())
