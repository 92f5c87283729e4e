#!/usr/bin/env python3
"""Traced models with one node changed.

Whichever node is changed, the altered file must return what ONNX Runtime returns for it, raised or
not, and parts that are not raised are named.
"""

import shutil
import sys

import numpy as np
import onnx
from onnx import numpy_helper

import harness
from harness import Case, read_ids
from test_raise import LAYERS, LIMIT, MASK, RAISED, TRACED, model

try:
    import ortref
except ImportError:
    ortref = None


class Altered(Case):
    """A traced model with one node changed."""

    name, layer = "", ""

    def setUp(self):
        super().setUp()
        self.model = onnx.load(model(self.name))
        self.graph = self.model.graph

    def node(self, op, at=0, layer=None):
        """Node number `at` with that op, in layer 0 or by its name."""
        layer = self.layer if layer is None else layer
        return [n for n in self.graph.node if n.op_type == op and layer in n.name][at]

    def constant(self, value):
        """The name of a new constant."""
        name = f"altered.{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
        return name

    def told(self, what=None, stop=None, why="", finite=True):
        """The altered file returns what ONNX Runtime returns; checks which part is not raised, and
        for which node."""
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        notes = [n for n in info["not_raised"] if self.layer in n["node"] or n["what"] != what]
        found = [(n["what"], n["stopped_by"]) for n in notes]
        self.assertEqual(found, [(what, stop)] if what else [], str(info["not_raised"]))
        for note in notes:
            self.assertIn(why, note["reason"])
        if what == MASK:
            self.assertEqual(info["raised"]["Attention"], LAYERS)
        if what:
            table = self.good("inspect", path, "--ops").out
            self.assertIn(f"not raised in a stateless run\n  {what} at '", table)
            self.assertIn(f"for node '{stop}'", table)
        if ortref and finite:
            self.same_as_ort(path)

    def rotary_stopped(self, stop):
        """Only RotaryEmbedding is not raised, in any layer, because of that node."""
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        self.assertEqual({(n["what"], n["stopped_by"]) for n in info["not_raised"]},
                         {("RotaryEmbedding", stop)})
        if ortref:
            self.same_as_ort(path)

    def same_as_ort(self, path):
        """One call with two batch rows, the second one padded."""
        runner, folder = ortref.Runner(path), self.dir / "inputs"
        past = TRACED / self.name / "ref" / "hybrid" / "inputs"
        ids = np.array(read_ids(TRACED / self.name / "ref" / "ids.txt"))[:14].reshape(2, 7)
        feed = {n: np.concatenate([np.load(past / f"{n}.npy")] * 2) for n in runner.past_names}
        mask = np.ones((2, 16), np.int64)
        mask[1, :3] = 0
        feed = runner.feed(ids, feed, mask)
        folder.mkdir()
        for name, value in feed.items():
            np.save(folder / f"{name}.npy", value)
        self.good("run", path, "--inputs", folder, "-o", self.dir / "out", "-q")
        for name, want in runner.run(feed).items():
            self.close(np.load(self.dir / "out" / f"{name}.npy"), want, LIMIT, name)


class Alter(Altered):
    """The traced llama with one node changed."""

    name, layer = "llama", "layers.0/"

    def test_as_it_is(self):
        """Without a change nothing is reported."""
        self.told()

    def test_scale_of_one_side(self):
        """Another scale is another attribute."""
        mul = self.product().input[0]
        scaled = next(n for n in self.graph.node if n.output[0] == mul)
        scaled.input[1] = self.constant(np.float32(0.7))
        self.told()

    def test_scale_before_transpose(self):
        """Keys that are scaled before they are transposed."""
        product = self.product()
        mul = next(n for n in self.graph.node if n.output[0] == product.input[1])
        swap = next(n for n in self.graph.node if n.output[0] == mul.input[0])
        mul.input[0], swap.input[0] = swap.input[0], mul.output[0]
        product.input[1] = swap.output[0]
        self.move(swap, mul)
        self.told()

    def move(self, node, behind):
        """Moves a node after another one."""
        order = list(self.graph.node)
        order.remove(node)
        order.insert(order.index(behind) + 1, node)
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def product(self):
        """The MatMul of queries and keys."""
        return next(n for n in self.graph.node if n.op_type == "MatMul" and "self_attn" in n.name
                    and "layers.0" in n.name and "proj" not in n.name)

    def test_mask_sees_the_future(self):
        """The other half of the triangle is a window without causality."""
        self.node("LessOrEqual", layer="").op_type = "GreaterOrEqual"
        self.told()

    def test_mask_sees_itself(self):
        """A mask of only one key is not recognised."""
        node = self.node("LessOrEqual", layer="")
        node.op_type = "Equal"
        self.told(MASK, node.name, "cannot be read")

    def test_mask_hides_itself(self):
        """Strictly before the query is not causal."""
        self.node("LessOrEqual", layer="").op_type = "Less"
        self.told(MASK, "/model/layers.0/self_attn/Where_2", "neither causal")

    def test_mask_weighs(self):
        """A hidden key keeps some weight."""
        where = self.node("Where", 2)
        where.input[2] = self.constant(np.array([-3], np.float32))
        self.told(MASK, where.name, "the lowest number")

    def test_mask_of_another_number(self):
        """-1e9 leaves nothing of a score; with -1e4 this is not certain."""
        where = self.node("Where", 2)
        where.input[2] = self.constant(np.array([-1e9], np.float32))
        self.told()
        where.input[2] = self.constant(np.array([-1e4], np.float32))
        for folder in self.dir.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)
        self.told(MASK, where.name, "the lowest number")

    def picked(self, number):
        """Scores selected by a Where instead of an added mask."""
        product, mask = self.product(), self.node("Where", 2)
        add = next(n for n in self.graph.node if n.op_type == "Add" and mask.output[0] in n.input)
        add.op_type = "Where"
        add.input[:] = [mask.input[0], product.output[0],
                        self.constant(np.array(number, np.float32))]
        return add

    def test_mask_picks(self):
        """Where on the scores is equivalent to a mask."""
        self.picked(-3.4e38)
        self.told()

    def test_mask_picks_more(self):
        """A number with which hidden scores keep some weight."""
        self.told("Attention", self.picked(-1e4).name, "does not hide them")

    def repeats(self, part):
        """The Reshape, Expand and Unsqueeze that repeat the heads of keys or values."""
        made = {o: n for n in self.graph.node for o in n.output}
        first = next(n for n in self.graph.node if n.op_type == "Unsqueeze"
                     and f"present.0.{part}" in n.input)
        expand = next(n for n in self.graph.node if n.op_type == "Expand"
                      and first.output[0] in n.input)
        last = next(n for n in self.graph.node if n.op_type == "Reshape"
                    and expand.output[0] in n.input)
        return made, expand, last

    def test_repeats_by_tile(self):
        """Tile in place of Expand."""
        for part in ("key", "value"):
            expand = self.repeats(part)[1]
            expand.op_type = "Tile"
            expand.input[1] = self.constant(np.array([1, 1, 2, 1, 1], np.int64))
        self.told()

    def by_gather(self, picked):
        """Heads selected by index."""
        for part in ("key", "value"):
            last = self.repeats(part)[2]
            last.op_type = "Gather"
            del last.attribute[:]
            last.attribute.append(onnx.helper.make_attribute("axis", 1))
            last.input[:] = [f"present.0.{part}", self.constant(np.array(picked, np.int64))]
        return last.name

    def test_repeats_by_gather(self):
        """Each head twice."""
        self.by_gather([0, 0, 1, 1])
        self.told()

    def test_repeats_in_turns(self):
        """Both heads, twice: different groups from those of Attention."""
        self.by_gather([0, 1, 0, 1])
        gather = self.repeats_of_keys()
        self.told("Attention", gather, "repeat heads")

    def repeats_of_keys(self):
        """The name of the Gather of keys, which are examined first."""
        return next(n.name for n in self.graph.node if n.op_type == "Gather"
                    and "present.0.key" in n.input)

    def test_between_past_and_attention(self):
        """Keys that are negated after their past."""
        made, expand, last = self.repeats("key")
        del made, expand
        neg = onnx.helper.make_node("Neg", [last.output[0]], ["altered"], name="altered")
        for n in self.graph.node:
            if last.output[0] in n.input:
                n.input[list(n.input).index(last.output[0])] = "altered"
        self.graph.node.insert(list(self.graph.node).index(last) + 1, neg)
        self.told("Attention", "altered", "between a past")

    def test_mask_of_another_op(self):
        """Xor hides what the mask contains."""
        node = self.node("And", 1, "/model/")
        node.op_type = "Xor"
        self.told(MASK, node.name, "cannot be read")

    def test_mask_of_queries(self):
        """The attention mask is read in the query's own column."""
        gather = next(n for n in self.graph.node if n.name == "/model/Gather_5")
        index = next(n for n in self.graph.node if n.output[0] == gather.input[1])
        keys = next(n.output[0] for n in self.graph.node if n.name == "/model/Unsqueeze_8")
        rows = next(n.output[0] for n in self.graph.node if n.name == "/model/Unsqueeze_2")
        index.input[list(index.input).index(keys)] = rows
        self.told(MASK, "/model/layers.0/self_attn/Where_2", "neither causal")

    def test_softmax_of_queries(self):
        """A softmax over another axis."""
        node = self.node("Softmax")
        node.attribute[0].i = -2
        self.told("Attention", node.name, "last axis")

    def test_no_softmax(self):
        """The softmax is removed."""
        node = self.node("Softmax")
        node.op_type = "Identity"
        del node.attribute[:]
        guard = self.node("Where", 3)
        self.told("Attention", guard.name, "softmax", finite=False)

    def test_no_product(self):
        """Scores that are not a product of queries and keys."""
        scores = self.product()
        tanh = self.graph.node.add()
        tanh.CopyFrom(onnx.helper.make_node("Sinh", [scores.output[0]], ["altered"], name="sinh"))
        tanh.op_type = "Erf"
        add = next(n for n in self.graph.node if scores.output[0] in n.input and n != tanh)
        add.input[list(add.input).index(scores.output[0])] = "altered"
        order = list(self.graph.node)
        order.insert(order.index(scores) + 1, order.pop(order.index(tanh)))
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        self.told("Attention", "sinh", "scaled product")

    def test_repeats_rows(self):
        """Groups of heads that are not adjacent."""
        node = next(n for n in self.graph.node if n.op_type == "Unsqueeze" and "layers.0" in n.name
                    and "present.0.value" in n.input)
        node.input[1] = self.constant(np.array([1], np.int64))
        expand = next(n for n in self.graph.node if node.output[0] in n.input
                      and n.op_type == "Expand")
        self.told("Attention", expand.name, "repeat heads")

    def test_rotation_without_sign(self):
        """Removed: nothing is negated."""
        node = self.node("Neg")
        node.op_type = "Identity"
        concat = next(n for n in self.graph.node if n.output[0] and node.output[0] in n.input)
        self.told("RotaryEmbedding", concat.name, "negated")

    def test_rotation_of_unequal_halves(self):
        """The two parts are not halves of x."""
        concat = self.node("Concat", 3)
        self.assertEqual(concat.input[0], self.node("Neg").output[0])
        concat.input[1] = self.node("Slice", 1).output[0]
        self.told("RotaryEmbedding", concat.name, "first half")

    def test_table_of_two_angles(self):
        """The halves of the tables differ."""
        concat = self.node("Concat", 1, "rotary_emb")
        neg = self.graph.node.add()
        neg.CopyFrom(onnx.helper.make_node("Neg", [concat.input[0]], ["altered"], name="altered"))
        concat.input[1] = "altered"
        order = list(self.graph.node)
        order.insert(order.index(concat), order.pop(order.index(neg)))
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        self.rotary_stopped(concat.name)

    def test_norm_of_a_sum(self):
        """A sum of squares is not a mean."""
        node = self.node("ReduceMean")
        node.op_type = "ReduceSum"
        add = next(n for n in self.graph.node if node.output[0] in n.input)
        self.told("RMSNormalization", add.name, "mean")

    def test_norm_over_another_axis(self):
        """The mean over the tokens."""
        node = self.node("ReduceMean")
        if len(node.input) > 1:
            node.input[1] = self.constant(np.array([1], np.int64))
        else:
            node.attribute[0].ints[:] = [1]
        self.told("RMSNormalization", node.name, "last axis")

    def test_activation_without_sigmoid(self):
        """Removed: x times another value."""
        self.node("Sigmoid").op_type = "Tanh"
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        self.assertEqual(info["raised"]["Swish"], 1)
        if ortref:
            self.same_as_ort(path)


class AlterNorms(Altered):
    """The traced gpt2 with its norms in simple ops, as written by tracers of opset 16."""

    name, layer = "gpt2", "/h.0/"

    def spell(self, mean="ReduceMean", centre=True):
        """Writes every LayerNormalization in simple ops; with the mean from another op, or without
        one."""
        nodes = []
        for n in self.graph.node:
            if n.op_type != "LayerNormalization":
                nodes.append(n)
                continue
            epsilon = next(a.f for a in n.attribute if a.name == "epsilon")
            x, scale, bias = n.input
            two, epsilon = self.constant(np.float32(2)), self.constant(np.float32(epsilon))

            def add(op, *inputs, out=None, **attributes):
                name = f"{n.name}.{len(nodes)}"
                nodes.append(onnx.helper.make_node(op, inputs, [out or name], name=name,
                                                   **attributes))
                return out or name

            c = add("Sub", x, add(mean, x, axes=[-1])) if centre else x
            square = add("ReduceMean", add("Pow", c, two), axes=[-1])
            y = add("Div", c, add("Sqrt", add("Add", square, epsilon)))
            add("Add", add("Mul", y, scale), bias, out=n.output[0])
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        path = self.dir / "spelt.onnx"
        onnx.save(self.model, path)
        raised = self.good("inspect", path, "--ops", "--format", "json").json()["raised"]
        if ortref:
            self.same_as_ort(path)
        return raised

    def test_norms(self):
        """All become one op each, including the bias."""
        self.assertEqual(self.spell(), {**RAISED["gpt2"], "LayerNormalization": 2 * LAYERS + 1})
        self.good("compile", self.dir / "spelt.onnx", "--stop-after", "raise", "--emit", "text",
                  "-o", self.dir / "m.gq")
        text = (self.dir / "m.gq").read_text()
        self.assertEqual(text.count("LayerNormalization %"), 2 * LAYERS + 1)
        self.assertRegex(text, r"= LayerNormalization [^,]+, [^,]+, %")

    def test_another_centre(self):
        """Subtracting the maximum: not a layer norm."""
        self.assertNotIn("LayerNormalization", self.spell("ReduceMax"))

    def test_no_centre(self):
        """Not centred: the root of the mean square."""
        raised = self.spell(centre=False)
        self.assertNotIn("LayerNormalization", raised)
        self.assertEqual(raised["RMSNormalization"], 2 * LAYERS + 1)


class AlterNeighbours(Altered):
    """The traced gptj with one node changed: pairs of neighbours, and a mask by ScatterND that is
    the sum of two."""

    name, layer = "gptj", "/h.0/"

    def follow(self, value, *ops):
        """The node that computes a value, through users with these ops."""
        for op in ops:
            node = next(n for n in self.graph.node if n.op_type == op and value in n.input)
            value = node.output[0]
        return node

    def both(self, stop, why):
        """Queries and keys, or only keys, are not raised because of that node."""
        self.told("RotaryEmbedding", stop, why)

    def test_as_it_is(self):
        """Without a change nothing is reported."""
        self.told()

    def test_nothing_negated(self):
        """Removed: nothing is negated."""
        neg = self.node("Neg")
        concat = self.follow(neg.output[0], "Unsqueeze", "Concat")
        neg.op_type = "Identity"
        self.both(concat.name, "negated")

    def test_channels_of_halves(self):
        """The first channels instead of every other one."""
        neg = self.node("Neg")
        concat = self.follow(neg.output[0], "Unsqueeze", "Concat")
        odd = next(n for n in self.graph.node if neg.input[0] in n.output)
        odd.input[1] = self.constant(np.array([0], np.int64))
        self.both(concat.name, "odd and the even")

    def test_order_of_pairs(self):
        """The parts of pairs are exchanged."""
        concat = self.follow(self.node("Neg").output[0], "Unsqueeze", "Concat")
        concat.input[0], concat.input[1] = concat.input[1], concat.input[0]
        self.both(concat.name, "negated")

    def test_table_of_halves(self):
        """The table contains its angles once in sequence, so equal angles are not adjacent."""
        tile = self.node("Tile", 2)
        self.assertEqual(self.follow(tile.output[0], "Reshape").op_type, "Reshape")
        add = next(n for n in self.graph.node if tile.input[0] in n.output)
        add.input[1] = self.constant(np.array([3], np.int64))
        tile.input[1] = self.constant(np.array([1, 1, 1, 2, 1], np.int64))
        self.rotary_stopped(tile.name)

    def mask_told(self, stop, why):
        """Attention is not raised in either layer, because of a node of the mask that they
        share."""
        self.told(MASK, stop, why)

    def test_mask_of_another_sum(self):
        """Padding is assumed where the sum of both masks is one, which is where a key is
        visible."""
        equal = self.node("Equal", layer="/transformer/Equal_1")
        equal.input[list(equal.input).index(self.zero_of(equal))] = self.constant(np.float32(1))
        self.told(MASK, *self.stopped())

    def zero_of(self, node):
        """Its constant operand."""
        made = {o: n for n in self.graph.node for o in n.output}
        return next(i for i in node.input if i not in made or made[i].op_type == "Constant")

    def stopped(self):
        """The node that the tool reports, which must be a node of the mask."""
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        note = next(n for n in info["not_raised"] if self.layer in n["node"])
        self.assertEqual(note["what"], MASK)
        return note["stopped_by"], note["reason"]

    def test_mask_written_elsewhere(self):
        """The updates are written one key further: not every element is written to its own
        position."""
        scatter = self.node("ScatterND", layer="")
        parts = next(n for n in self.graph.node if scatter.input[1] in n.output)
        parts.input[2] = parts.input[0]
        self.told(MASK, scatter.name, "cannot be read", finite=False)


class AlterSlopes(Altered):
    """The traced bloom with one node changed: linear biases (ALiBi), products of [B*H,S,D]."""

    name, layer = "bloom", "/h.0/"

    def refused(self):
        """A sequence does not support such a bias."""
        self.check(harness.gqac("score", self.dir / "altered.onnx", "--ids",
                                TRACED / self.name / "ref" / "ids.txt", "-q"), 3, "mask or bias")

    def test_as_it_is(self):
        """Without a change nothing is reported."""
        self.told()

    def test_two_biases(self):
        """Two biases of positions are not a slope: both stay tensors."""
        product = self.node("Mul", layer="/transformer/Mul_1")
        at = list(self.graph.node).index(product)
        self.graph.node.insert(at + 1, onnx.helper.make_node(
            "Mul", ["altered", "altered"], [product.output[0]], name="square"))
        self.graph.node[at].output[0] = "altered"
        self.told(MASK, "square", "cannot be read")
        self.refused()

    def test_bias_of_queries(self):
        """A table that is not linear can only be a tensor."""
        slopes = self.node("Mul", layer="/transformer/Mul_1")
        slopes.op_type = "Pow"
        self.told(MASK, slopes.name, "cannot be read", finite=False)
        self.refused()

    def test_negative_slopes(self):
        """Other slopes are just other numbers."""
        mul = self.node("Mul", layer="/transformer/Mul_1")
        made = {o: n for n in self.graph.node for o in n.output}
        constant = next(i for i in mul.input if made[i].op_type == "Constant")
        table = made[constant].attribute[0].t
        table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) * -0.37))
        self.told()
        self.as_sequence()

    def as_sequence(self):
        """Like ONNX Runtime, with the same bits for every split."""
        path, ids = self.dir / "altered.onnx", TRACED / self.name / "ref" / "ids.txt"
        for splits in ("48", "9,15,1,1,22"):
            self.good("score", path, "--ids", ids, "--splits", splits, "--logits",
                      self.dir / f"{splits}.npy", "-q")
        got = np.load(self.dir / "48.npy")
        self.assertTrue((got == np.load(self.dir / "9,15,1,1,22.npy")).all())
        if ortref:
            want = ortref.Runner(path).score(np.array(read_ids(ids)))
            self.close(got, want, LIMIT, self.name)


if __name__ == "__main__":
    sys.exit(harness.main())
