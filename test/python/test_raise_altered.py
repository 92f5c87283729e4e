#!/usr/bin/env python3
"""Traced models with one node changed.

Whatever node is changed, the altered file must give what ONNX Runtime gives for it, raised or not,
and what is not raised is named.
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
        """Node number `at` of that op, in layer 0 or where its name says."""
        layer = self.layer if layer is None else layer
        return [n for n in self.graph.node if n.op_type == op and layer in n.name][at]

    def constant(self, value):
        """The name of a new constant."""
        name = f"altered.{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
        return name

    def told(self, what=None, stop=None, why="", finite=True):
        """The altered file gives what ONNX Runtime gives; what is not raised, and for which node."""
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
        """RotaryEmbedding is all that is not raised, in no layer, for that node."""
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        self.assertEqual({(n["what"], n["stopped_by"]) for n in info["not_raised"]},
                         {("RotaryEmbedding", stop)})
        if ortref:
            self.same_as_ort(path)

    def same_as_ort(self, path):
        """One call of two rows, the second padded."""
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
        """Nothing altered: nothing is reported."""
        self.told()

    def test_scale_of_one_side(self):
        """Another scale is another attribute."""
        mul = self.product().input[0]
        scaled = next(n for n in self.graph.node if n.output[0] == mul)
        scaled.input[1] = self.constant(np.float32(0.7))
        self.told()

    def test_scale_before_transpose(self):
        """Keys that are scaled first and transposed then."""
        product = self.product()
        mul = next(n for n in self.graph.node if n.output[0] == product.input[1])
        swap = next(n for n in self.graph.node if n.output[0] == mul.input[0])
        mul.input[0], swap.input[0] = swap.input[0], mul.output[0]
        product.input[1] = swap.output[0]
        self.move(swap, mul)
        self.told()

    def move(self, node, behind):
        """Puts a node after another one."""
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
        """A single key each is not known."""
        node = self.node("LessOrEqual", layer="")
        node.op_type = "Equal"
        self.told(MASK, node.name, "cannot be read")

    def test_mask_hides_itself(self):
        """Strictly before is not causal."""
        self.node("LessOrEqual", layer="").op_type = "Less"
        self.told(MASK, "/model/layers.0/self_attn/Where_2", "neither causal")

    def test_mask_weighs(self):
        """A hidden key keeps a weight."""
        where = self.node("Where", 2)
        where.input[2] = self.constant(np.array([-3], np.float32))
        self.told(MASK, where.name, "the lowest number")

    def test_mask_of_another_number(self):
        """-1e9 leaves nothing of a score; of -1e4 that is not sure."""
        where = self.node("Where", 2)
        where.input[2] = self.constant(np.array([-1e9], np.float32))
        self.told()
        where.input[2] = self.constant(np.array([-1e4], np.float32))
        for folder in self.dir.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)
        self.told(MASK, where.name, "the lowest number")

    def picked(self, number):
        """Scores by a Where instead of a mask that is added."""
        product, mask = self.product(), self.node("Where", 2)
        add = next(n for n in self.graph.node if n.op_type == "Add" and mask.output[0] in n.input)
        add.op_type = "Where"
        add.input[:] = [mask.input[0], product.output[0],
                        self.constant(np.array(number, np.float32))]
        return add

    def test_mask_picks(self):
        """Where on the scores says what a mask says."""
        self.picked(-3.4e38)
        self.told()

    def test_mask_picks_more(self):
        """A number that leaves something of hidden scores."""
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
        """Tile in the place of Expand."""
        for part in ("key", "value"):
            expand = self.repeats(part)[1]
            expand.op_type = "Tile"
            expand.input[1] = self.constant(np.array([1, 1, 2, 1, 1], np.int64))
        self.told()

    def by_gather(self, picked):
        """Heads picked by number."""
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
        """Both heads, twice: other groups than those of Attention."""
        self.by_gather([0, 1, 0, 1])
        gather = self.repeats_of_keys()
        self.told("Attention", gather, "repeat heads")

    def repeats_of_keys(self):
        """The name of the Gather of keys, which are looked at first."""
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
        """What the mask says is not known through Xor."""
        node = self.node("And", 1, "/model/")
        node.op_type = "Xor"
        self.told(MASK, node.name, "cannot be read")

    def test_mask_of_queries(self):
        """The attention mask is asked for the query's own column."""
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
        """Deleted."""
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
        """Groups of heads that are not neighbours."""
        node = next(n for n in self.graph.node if n.op_type == "Unsqueeze" and "layers.0" in n.name
                    and "present.0.value" in n.input)
        node.input[1] = self.constant(np.array([1], np.int64))
        expand = next(n for n in self.graph.node if node.output[0] in n.input
                      and n.op_type == "Expand")
        self.told("Attention", expand.name, "repeat heads")

    def test_rotation_without_sign(self):
        """Deleted: nothing is negated."""
        node = self.node("Neg")
        node.op_type = "Identity"
        concat = next(n for n in self.graph.node if n.output[0] and node.output[0] in n.input)
        self.told("RotaryEmbedding", concat.name, "negated")

    def test_rotation_of_unequal_halves(self):
        """Halves that are not halves of x."""
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
        """A sum of squares is no mean."""
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
        """Deleted: x times something else."""
        self.node("Sigmoid").op_type = "Tanh"
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        self.assertEqual(info["raised"]["Swish"], 1)
        if ortref:
            self.same_as_ort(path)


class AlterNorms(Altered):
    """The traced gpt2 with its norms in simple ops, as tracers of opset 16 write them."""

    name, layer = "gpt2", "/h.0/"

    def spell(self, mean="ReduceMean", centre=True):
        """Every LayerNormalization in simple ops; the mean by another op, or of nothing."""
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
        """All become one op each, the bias in it."""
        self.assertEqual(self.spell(), {**RAISED["gpt2"], "LayerNormalization": 2 * LAYERS + 1})
        self.good("compile", self.dir / "spelt.onnx", "--stop-after", "raise", "--emit", "text",
                  "-o", self.dir / "m.gq")
        text = (self.dir / "m.gq").read_text()
        self.assertEqual(text.count("LayerNormalization %"), 2 * LAYERS + 1)
        self.assertRegex(text, r"= LayerNormalization [^,]+, [^,]+, %")

    def test_another_centre(self):
        """Less the greatest: not the norm of a layer."""
        self.assertNotIn("LayerNormalization", self.spell("ReduceMax"))

    def test_no_centre(self):
        """Not centred: the root of the mean of squares."""
        raised = self.spell(centre=False)
        self.assertNotIn("LayerNormalization", raised)
        self.assertEqual(raised["RMSNormalization"], 2 * LAYERS + 1)


class AlterNeighbours(Altered):
    """The traced gptj with one node changed: pairs that are neighbours, a mask by ScatterND that
    was added up from two."""

    name, layer = "gptj", "/h.0/"

    def follow(self, value, *ops):
        """The node that makes a value, through users of these ops."""
        for op in ops:
            node = next(n for n in self.graph.node if n.op_type == op and value in n.input)
            value = node.output[0]
        return node

    def both(self, stop, why):
        """Queries and keys, or keys alone, are not raised for that node."""
        self.told("RotaryEmbedding", stop, why)

    def test_as_it_is(self):
        """Nothing altered: nothing is reported."""
        self.told()

    def test_nothing_negated(self):
        """Deleted: nothing is negated."""
        neg = self.node("Neg")
        concat = self.follow(neg.output[0], "Unsqueeze", "Concat")
        neg.op_type = "Identity"
        self.both(concat.name, "negated")

    def test_channels_of_halves(self):
        """The first channels, not every other one."""
        neg = self.node("Neg")
        concat = self.follow(neg.output[0], "Unsqueeze", "Concat")
        odd = next(n for n in self.graph.node if neg.input[0] in n.output)
        odd.input[1] = self.constant(np.array([0], np.int64))
        self.both(concat.name, "odd and the even")

    def test_order_of_pairs(self):
        """The parts of pairs change places."""
        concat = self.follow(self.node("Neg").output[0], "Unsqueeze", "Concat")
        concat.input[0], concat.input[1] = concat.input[1], concat.input[0]
        self.both(concat.name, "negated")

    def test_table_of_halves(self):
        """The table holds its angles one after the other: each angle is not beside itself."""
        tile = self.node("Tile", 2)
        self.assertEqual(self.follow(tile.output[0], "Reshape").op_type, "Reshape")
        add = next(n for n in self.graph.node if tile.input[0] in n.output)
        add.input[1] = self.constant(np.array([3], np.int64))
        tile.input[1] = self.constant(np.array([1, 1, 1, 2, 1], np.int64))
        self.rotary_stopped(tile.name)

    def mask_told(self, stop, why):
        """Attention is not raised in either layer for a node of the mask they share."""
        self.told(MASK, stop, why)

    def test_mask_of_another_sum(self):
        """Padding is looked for where the sum of both masks is one: where a key is seen."""
        equal = self.node("Equal", layer="/transformer/Equal_1")
        equal.input[list(equal.input).index(self.zero_of(equal))] = self.constant(np.float32(1))
        self.told(MASK, *self.stopped())

    def zero_of(self, node):
        """Its operand that is a constant."""
        made = {o: n for n in self.graph.node for o in n.output}
        return next(i for i in node.input if i not in made or made[i].op_type == "Constant")

    def stopped(self):
        """Where the tool says that it was stopped, which must be a node of the mask."""
        path = self.dir / "altered.onnx"
        onnx.save(self.model, path)
        info = self.good("inspect", path, "--ops", "--format", "json").json()
        note = next(n for n in info["not_raised"] if self.layer in n["node"])
        self.assertEqual(note["what"], MASK)
        return note["stopped_by"], note["reason"]

    def test_mask_written_elsewhere(self):
        """The updates go one key further: not every element is written where it lies."""
        scatter = self.node("ScatterND", layer="")
        parts = next(n for n in self.graph.node if scatter.input[1] in n.output)
        parts.input[2] = parts.input[0]
        self.told(MASK, scatter.name, "cannot be read", finite=False)


class AlterSlopes(Altered):
    """The traced bloom with one node changed: linear biases (ALiBi), products of [B*H,S,D]."""

    name, layer = "bloom", "/h.0/"

    def refused(self):
        """A sequence has no such bias."""
        self.check(harness.gqac("score", self.dir / "altered.onnx", "--ids",
                                TRACED / self.name / "ref" / "ids.txt", "-q"), 3, "mask or bias")

    def test_as_it_is(self):
        """Nothing altered: nothing is reported."""
        self.told()

    def test_two_biases(self):
        """Two biases of places are no slope: both stay tensors."""
        product = self.node("Mul", layer="/transformer/Mul_1")
        at = list(self.graph.node).index(product)
        self.graph.node.insert(at + 1, onnx.helper.make_node(
            "Mul", ["altered", "altered"], [product.output[0]], name="square"))
        self.graph.node[at].output[0] = "altered"
        self.told(MASK, "square", "cannot be read")
        self.refused()

    def test_bias_of_queries(self):
        """A table that is not linear: only a tensor says it."""
        slopes = self.node("Mul", layer="/transformer/Mul_1")
        slopes.op_type = "Pow"
        self.told(MASK, slopes.name, "cannot be read", finite=False)
        self.refused()

    def test_negative_slopes(self):
        """Other slopes are other numbers."""
        mul = self.node("Mul", layer="/transformer/Mul_1")
        made = {o: n for n in self.graph.node for o in n.output}
        constant = next(i for i in mul.input if made[i].op_type == "Constant")
        table = made[constant].attribute[0].t
        table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) * -0.37))
        self.told()
        self.as_sequence()

    def as_sequence(self):
        """As ONNX Runtime, with the same bits for every split."""
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
