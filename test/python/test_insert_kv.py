#!/usr/bin/env python3
"""`gqac rewrite --pass insert-kv`: decoders without a cache get one (rows N10 to N13).

The decoders are those of decoders.py, and an export of the model builder, with their pasts removed.
ONNX Runtime is the oracle: the rewritten file must return, with empty caches and in calls of any
length, the same as the original file. gqac itself must compute the same bits however the tokens are
split.
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import decoders
import harness
from decoders import Decoder
from harness import Case, write_ids

KINDS = ["attention", "attention_capped", "attention_bool", "attention_window", "attention_4d",
         "multi_head", "multi_head_padded", "multi_head_lengths", "multi_head_biased",
         "packed", "packed_padded"]
# ONNX Runtime's CPU kernels refuse these, with and without a cache: windows of Attention-24, the
# number of keys as a padding mask, masks with one row for all queries.
NOT_IN_ORT = ("attention_window", "multi_head_lengths", "attention_capped", "attention_bool",
              "multi_head_biased")
TOKENS, LIMIT = 23, 2e-5


def strip(model):
    """The same model without a cache: its masks have a column for each token of the call."""
    graph = model.graph
    for values in (graph.input, graph.output):
        kept = [v for v in values if not v.name.startswith(("past", "present"))]
        del values[:]
        values.extend(kept)
    for node in graph.node:
        for names in (node.input, node.output):
            words = ["" if n.startswith(("past", "present")) else n for n in names]
            while words and not words[-1]:
                words.pop()
            del names[:]
            names.extend(words)
    rows = graph.input[0].type.tensor_type.shape.dim[1].dim_param
    for value in graph.input:
        if value.name == "attention_mask":
            value.type.tensor_type.shape.dim[1].dim_param = rows
    del graph.value_info[:]
    return model


def with_positions(model, how):
    """Learnt positions that the graph computes itself: a Range, a part of a constant, sums of ones,
    or twice their number; "flat" ones have no batch axis."""
    flat, how = how.startswith("flat"), how.split()[-1]
    graph = model.graph
    table = np.random.default_rng(9).standard_normal((64, decoders.WIDTH)).astype(np.float32)
    constants = {"wpe": table, "all": np.arange(64) if flat else np.arange(64)[None], "p0": np.int64(0), "p1": np.int64(1),
                 "f1": np.float32(1),
                 "at0": np.array([0]), "at1": np.array([1])}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k)
                             for k, v in constants.items())
    make = helper.make_node
    nodes = [make("Shape", ["input_ids"], ["rows"], start=1, end=2)]
    if how == "range":
        nodes += [make("Squeeze", ["rows"], ["n"]), make("Range", ["p0", "n", "p1"], ["counted"]),
                  make("Identity", ["counted"], ["places"]) if flat else
                  make("Unsqueeze", ["counted", "at0"], ["places"])]
    elif how == "sums":
        nodes += [make("Shape", ["input_ids"], ["both"]), make("Expand", ["f1", "both"], ["ones"]),
                  make("CumSum", ["ones", "p1"], ["sums"], name="sums"),
                  make("Mul", ["sums", "ones"], ["shown"]),
                  make("Sub", ["shown", "f1"], ["less"]),
                  make("Cast", ["less"], ["places"], to=7)]
    elif how == "doubled":
        nodes += [make("Squeeze", ["rows"], ["n"]),
                  make("Range", ["p0", "n", "p1"], ["counted"], name="cut"),
                  make("Add", ["counted", "counted"], ["twice"]),
                  make("Unsqueeze", ["twice", "at0"], ["places"])]
    else:
        nodes += [make("Slice", ["all", "at0", "rows", "at0" if flat else "at1"], ["places"],
                       name="cut")]
    nodes += [make("Gather", ["wpe", "places"], ["learnt"]),
              make("Add", ["node.0", "learnt"], ["placed"])]
    for node in graph.node[1:]:
        for i, name in enumerate(node.input):
            if name == "node.0":
                node.input[i] = "placed"
    for i, node in enumerate(nodes):
        graph.node.insert(1 + i, node)
    return model


def session(path):
    """ONNX Runtime on one thread."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def names(values):
    """Names of graph inputs or outputs."""
    return [v.name for v in values]


def with_slopes(model, table):
    """A bias for each head and key, [1,H,1,64], of which a call uses the beginning (MPT)."""
    graph = model.graph
    make = helper.make_node
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in {
        "table": table.astype(np.float32), "zero1": np.array([0]), "one1": np.array([1]),
        "axis1": np.array([3])}.items())
    nodes = [make("Shape", ["input_ids"], ["keys"], start=1, end=2),
             make("Slice", ["table", "zero1", "keys", "axis1"], ["biases"], name="cut"),
             make("Concat", ["one1", "one1", "keys", "one1"], ["all"], axis=0),
             make("Expand", ["biases", "all"], ["bias"])]
    for i, node in enumerate(nodes):
        graph.node.insert(i, node)
    for node in graph.node:
        if node.op_type == "Attention":
            words = [*node.input, "", "", ""][:3] + ["bias"]
            del node.input[:]
            node.input.extend(words)
    return model


class Looped:
    """A rewritten file in ONNX Runtime, whose presents are the next pasts."""

    def __init__(self, path):
        self.session = session(path)
        inputs = self.session.get_inputs()
        self.caches = [i for i in inputs if i.name.startswith("cache_")]
        self.inputs = names(inputs)
        self.outputs = names(self.session.get_outputs())

    def empty(self):
        """Caches without rows."""
        return {c.name: np.zeros([d if isinstance(d, int) else 0 if "past" in d else 1
                                  for d in c.shape], np.float32) for c in self.caches}

    def score(self, ids, chunks):
        """Logits of calls with these numbers of tokens."""
        caches, rows, at = self.empty(), [], 0
        for n in chunks:
            feeds = {"input_ids": np.array([ids[at:at + n]], np.int64), **caches}
            if "attention_mask" in self.inputs:
                feeds["attention_mask"] = np.ones((1, at + n), np.int64)
            if "position_ids" in self.inputs:
                feeds["position_ids"] = np.arange(at, at + n)[None]
            out = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
            caches = {c.name: out[c.name.replace("_in_", "_out_")] for c in self.caches}
            rows.append(out["logits"][0])
            at += n
        return np.concatenate(rows)


class InsertKv(Case):
    """Rewrites models, and runs the results."""

    def setUp(self):
        super().setUp()
        self.ids = [(i * 37 + i // 7 * 5 + 11) % decoders.VOCABULARY for i in range(TOKENS)]
        self.bare, self.cached = self.dir / "bare.onnx", self.dir / "cached.onnx"

    def save(self, kind):
        """A decoder without a cache."""
        onnx.save(strip(Decoder(kind).model()), self.bare)

    def rewrite(self, *more):
        """Runs the rewrite on the bare model."""
        return self.good("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached, *more)

    def expected(self):
        """Logits of one call of the bare model in ONNX Runtime."""
        s = session(self.bare)
        feeds = {"input_ids": np.array([self.ids], np.int64),
                 "attention_mask": np.ones((1, len(self.ids)), np.int64),
                 "position_ids": np.arange(len(self.ids))[None]}
        wanted = names(s.get_inputs())
        return s.run(["logits"], {k: v for k, v in feeds.items() if k in wanted})[0][0]

    def in_ort(self, what):
        """One call, token by token and in pieces: the same as before."""
        expected, looped = self.expected(), Looped(self.cached)
        for chunks in ([TOKENS], [1] * TOKENS, [5, 1, 9, TOKENS - 15]):
            self.close(looped.score(self.ids, chunks), expected, LIMIT, f"{what} {chunks}")

    def in_gqac(self, what):
        """equiv finds no differing bit; score equals one stateless run of the bare model."""
        ids = write_ids(self.dir / "ids.txt", self.ids)
        proof = self.good("equiv", self.cached, "--ids", ids, "--splits", "random:4", "--threads",
                          "1,2", "--format", "json", "-q").json()
        self.assertEqual(proof["differing"], 0, what)
        self.assertGreater(proof["compared"], TOKENS * decoders.VOCABULARY)
        out = self.dir / "logits.npy"
        self.good("score", self.cached, "--ids", ids, "--logits", out, "-q")
        folder = self.dir / "in"
        folder.mkdir(exist_ok=True)
        np.save(folder / "input_ids.npy", np.array([self.ids], np.int64))
        np.save(folder / "attention_mask.npy", np.ones((1, TOKENS), np.int64))
        np.save(folder / "position_ids.npy", np.arange(TOKENS)[None])
        self.good("run", self.bare, "--inputs", folder, "--output", self.dir / "out", "-q")
        self.close(np.load(out), np.load(self.dir / "out" / "logits.npy")[0], 2e-6, what)

    def like_greedy(self, what):
        """generate continues like a loop that requests all logits from ONNX Runtime every time."""
        before, ids = self.ids, write_ids(self.dir / "ids.txt", self.ids)
        for _ in range(4):
            self.ids = self.ids + [int(np.argmax(self.expected()[-1]))]
        out = self.good("generate", self.cached, "--ids", ids, "-n", 4, "-q").out
        self.assertEqual([int(x) for x in out.split()], self.ids[-4:], what)
        self.ids = before

    def whole(self, kind):
        """All ways to run a kind."""
        self.save(kind)
        self.rewrite()
        if kind not in NOT_IN_ORT:
            self.in_ort(kind)
        self.in_gqac(kind)

    def test_n10_n11_names_and_order(self):
        """Two inputs and two results a layer, after the model's own, in the order of the file."""
        self.save("attention_bool")
        before = onnx.load(self.bare).graph
        done = self.rewrite("--format", "json").json()
        self.assertEqual(done, {"pass": "insert-kv", "changes": decoders.LAYERS,
                                "files": [str(self.cached)]})
        after = onnx.load(self.cached).graph
        for old, new, word in ((before.input, after.input, "in"),
                               (before.output, after.output, "out")):
            self.assertEqual(names(new), names(old) + [
                f"cache_{part}_{word}_{i}" for i in range(decoders.LAYERS) for part in "kv"])
        dims = [[d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim]
                for v in after.input]
        self.assertEqual(dims[1:3], [["B", "S+past_sequence_length"],
                                     ["B", decoders.KV_HEADS, "past_sequence_length",
                                      decoders.SIZE]])

    def test_n10_packed(self):
        """com.microsoft.Attention has keys and values in one tensor."""
        self.save("packed")
        self.rewrite()
        self.assertEqual(names(onnx.load(self.cached).graph.input),
                         ["input_ids", "attention_mask", "cache_in_0", "cache_in_1"])

    def test_n12_the_rest_stays(self):
        """No additional nodes, and unchanged weights."""
        self.save("multi_head_padded")
        self.rewrite()
        old, new = onnx.load(self.bare).graph, onnx.load(self.cached).graph
        self.assertLessEqual(len(new.node), len(old.node))
        onnx.checker.check_model(onnx.load(self.cached))
        weights = {w.name: w.raw_data for w in old.initializer if w.name[1:].isdigit()}
        self.assertEqual({w.name: w.raw_data for w in new.initializer if w.name in weights},
                         weights)

    def test_n13_second_run(self):
        """If the model has a cache: a message, and the file is unchanged."""
        self.save("attention")
        self.rewrite()
        before = self.cached.read_bytes(), self.cached.stat().st_ino
        run = self.good("rewrite", self.cached, "--pass", "insert-kv", "-o", self.cached)
        self.assertIn("nothing to do", run.out)
        self.assertEqual((self.cached.read_bytes(), self.cached.stat().st_ino), before)
        other = self.dir / "again.onnx"
        self.good("rewrite", self.cached, "--pass", "insert-kv", "-o", other)
        self.assertEqual(onnx.load(other).graph, onnx.load(self.cached).graph)

    def test_n13_declared_shapes(self):
        """What has a cache is written with the outputs of the file, also where infer finds other dims."""
        for name in ("llama", "qwen3"):
            self.good("rewrite", harness.model(name), "--pass", "insert-kv", "-o", self.cached)
            self.assertEqual(list(onnx.load(self.cached).graph.output),
                             list(onnx.load(harness.model(name)).graph.output))

    def test_unknown_rank(self):
        """A declared shape is written although infer does not know the rank."""
        def info(name, kind, *dims):
            return helper.make_tensor_value_info(name, kind, dims)
        graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g",
                                  [info("x", onnx.TensorProto.FLOAT, "B", "S"),
                                   info("shape", onnx.TensorProto.INT64, "r")],
                                  [info("y", onnx.TensorProto.FLOAT, "B", "S")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, self.bare)
        self.good("rewrite", self.bare, "--pass", "raise", "-o", self.cached)
        self.assertEqual(list(onnx.load(self.cached).graph.output), list(model.graph.output))

    def test_n13_traced_second_run(self):
        """With another output file, too, the second run writes the bytes of the first."""
        traced = harness.ROOT / "test" / "traced"
        for name in ("llama-no-cache/model.onnx", "dynamo-mistral-no-cache/model.onnx",
                     "whisper/decoder_model.onnx"):
            self.bare, again = traced / name, self.dir / "again.onnx"
            self.rewrite()
            self.good("rewrite", self.cached, "--pass", "insert-kv", "-o", again)
            self.assertEqual(again.read_bytes(), self.cached.read_bytes(), name)

    def test_n13_in_place(self):
        """-o MODEL rewrites the file, and prints the number of layers."""
        self.save("attention")
        run = self.good("rewrite", self.bare, "--pass", "insert-kv", "-o", self.bare)
        self.assertIn(f"{decoders.LAYERS} attention nodes", run.out)
        self.assertIn("cache_v_out_1", names(onnx.load(self.bare).graph.output))

    def test_n13_missing_file(self):
        """A message, and no file."""
        run = harness.gqac("rewrite", self.dir / "none.onnx", "--pass", "insert-kv", "-o",
                           self.cached)
        self.check(run, 5, "none.onnx")
        self.assertFalse(self.cached.exists())

    def test_n13_no_attention(self):
        """A message, and the file is unchanged."""
        d = Decoder("attention")
        del d.nodes[:]
        d.node("MatMul", d.node("Gather", "embed", "input_ids"), "head", out=["logits"])
        onnx.save(strip(d.model()), self.bare)
        before = self.bare.read_bytes()
        for out in (self.cached, self.bare):
            run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", out)
            self.check(run, 3, "no attention", "bare.onnx")
        self.assertFalse(self.cached.exists())
        self.assertEqual(self.bare.read_bytes(), before)

    def test_many_layers(self):
        """Each layer requires a walk over the whole graph, so their number is limited."""
        for layers, code in ((2, 0), (2049, 3)):
            nodes = [helper.make_node("Gather", ["embed", "input_ids"], ["x0"])]
            for i in range(layers):
                nodes.append(helper.make_node("MultiHeadAttention", [f"x{i}"] * 3, [f"x{i + 1}"],
                                              domain="com.microsoft", num_heads=1,
                                              unidirectional=1))
            graph = helper.make_graph(
                nodes, "g", [helper.make_tensor_value_info("input_ids", 7, ["B", "S"])],
                [helper.make_tensor_value_info(f"x{layers}", 1, None)],
                [numpy_helper.from_array(np.ones((16, 8), np.float32), "embed")])
            onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
                helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), self.bare)
            run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
            self.check(run, code, *(["more than 2048"] if code else []))

    def test_not_raised(self):
        """The message contains the reason why attention is not raised."""
        model = onnx.load(harness.ROOT / "test" / "traced" / "opt-no-cache" / "model.onnx")
        made = {n.output[0]: n for n in model.graph.node}
        stopped = [made[n.input[0]] for n in model.graph.node if n.op_type == "Softmax"]
        for node in stopped:
            node.op_type = "Mul"  # scores times mask
        onnx.save(model, self.bare)
        run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
        self.check(run, 3, "no attention", stopped[0].name, "not a scaled product")
        for node in model.graph.node:
            if node.op_type == "MatMul" and made.get(node.input[0], node).op_type == "Softmax":
                node.input[0] = made[node.input[0]].input[0]  # no weighing by a softmax
        onnx.save(model, self.bare)
        run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
        self.check(run, 3, "no attention", "insert-kv")
        self.assertFalse(self.cached.exists())

    def test_mask_as_data(self):
        """A mask that is also used as data has no column for cached tokens."""
        model = strip(Decoder("attention_bool").model())
        make = helper.make_node
        for i, node in enumerate((make("Cast", ["attention_mask"], ["as_float"], to=1),
                                  make("Unsqueeze", ["as_float", "two"], ["factor"], name="column"),
                                  make("Mul", ["node.0", "factor"], ["masked"]))):
            model.graph.node.insert(1 + i, node)
        for node in model.graph.node[4:]:
            node.input[:] = ["masked" if n == "node.0" else n for n in node.input]
        onnx.save(model, self.bare)
        run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
        self.check(run, 3, "more than masks", "attention_mask", "(Cast)")
        self.assertFalse(self.cached.exists())

    def test_mask_is_result(self):
        """A mask that is also an output would get other columns, so no input is mistaken for it."""
        for how in ("itself", "copy"):
            model = strip(Decoder("attention_bool").model())
            if how == "copy":
                model.graph.node.append(helper.make_node("Identity", ["attention_mask"], ["mask"]))
            model.graph.output.append(helper.make_tensor_value_info(
                "mask" if how == "copy" else "attention_mask", 7, ["B", "S"]))
            onnx.save(model, self.bare)
            run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
            self.check(run, 3, "attention_mask", "a column for each cached token")
            self.assertFalse(self.cached.exists())

    def test_mask_that_nothing_reads(self):
        """It gets columns for cached tokens, like one that is read."""
        self.save("attention")
        self.rewrite()
        mask = onnx.load(self.cached).graph.input[1]
        self.assertEqual([d.dim_param for d in mask.type.tensor_type.shape.dim],
                         ["B", "S+past_sequence_length"])
        self.in_ort("attention")

    def test_window_and_bias(self):
        """A window together with a mask that is added: both in one mask, which every runtime
        supports."""
        model = strip(Decoder("attention_capped").model())
        for node in model.graph.node:
            if node.op_type == "Attention":
                node.attribute.append(helper.make_attribute("left_window_size", 4))
        model.opset_import[0].version = 25
        onnx.save(model, self.bare)
        self.rewrite()
        made = onnx.load(self.cached)
        for node in made.graph.node:
            left = [a.i for a in node.attribute if a.name == "left_window_size"]
            self.assertIn(left, ([], [-1]))
        self.assertIn("Where", [n.op_type for n in made.graph.node])
        self.in_gqac("window")

    def test_refused(self):
        """Nodes whose results a cache would change are refused by name."""
        for kind, word in (("mask_from_shapes", "Range_"), ("bias_from_shapes", "Range_"),
                           ("queries_padded", "attention")):
            self.save(kind)
            run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached)
            if kind != "queries_padded":
                self.check(run, 3, word, "insert-kv")
                self.assertFalse(self.cached.exists(), kind)
        self.check(harness.gqac("rewrite", self.bare, "--pass", "kv", "-o", self.cached), 2,
                   "no rewrite 'kv'", "insert-kv")
        self.check(harness.gqac("rewrite", self.bare, "--pass", "insert-kv"), 2, "-o FILE")
        self.check(harness.gqac("rewrite", self.bare, "-o", self.cached), 2, "--pass NAME")
        self.check(harness.gqac("rewrite", self.bare, "--pass", "raise", "--pass", "insert-kv",
                                "-o", self.cached), 2, "--pass is given twice")

    def test_slopes(self):
        """A table of linear biases for the keys of one call is extended to cached ones. If one
        number is changed, they are not linear, and the model is refused."""
        self.save("slopes")  # its mask has one row for all queries, which ONNX Runtime refuses
        self.rewrite()
        self.in_gqac("slopes")
        table = 0.5 ** np.arange(1, decoders.HEADS + 1)[:, None] * (np.arange(64) - 63)
        onnx.save(with_slopes(strip(Decoder("attention").model()), table[None, :, None]), self.bare)
        self.rewrite()
        self.in_ort("slopes")
        self.in_gqac("slopes")
        table[1, 3] += 0.5
        onnx.save(with_slopes(strip(Decoder("attention").model()), table[None, :, None]), self.bare)
        self.check(harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached), 3,
                   "insert-kv")

    def test_sums_in_a_mask(self):
        """If sums of the attention mask in another mask are positions of keys (BLOOM), an input of
        positions of the new tokens cannot replace them."""
        model = with_slopes(strip(Decoder("attention").model()), np.ones((1, decoders.HEADS, 1, 1)))
        nodes = [helper.make_node("CumSum", ["attention_mask", "one1"], ["sums"], name="sums"),
                 helper.make_node("Sub", ["sums", "one1"], ["places"]),
                 helper.make_node("Cast", ["places"], ["keys_at"], to=1),
                 helper.make_node("Unsqueeze", ["keys_at", "axes12"], ["keys4"]),
                 helper.make_node("Mul", ["table", "keys4"], ["biases"])]
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "axes12"))
        for i, node in enumerate(nodes):
            model.graph.node.insert(i, node)
        for node in [n for n in model.graph.node if n.name == "cut"]:
            model.graph.node.remove(node)
        onnx.save(model, self.bare)
        self.check(harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached), 3,
                   "sums", "insert-kv")
        self.assertFalse(self.cached.exists())

    def test_positions(self):
        """Positions that the graph counts become an input; those that do not count are refused."""
        for how in ("range", "slice", "flat range", "flat slice", "sums"):
            onnx.save(with_positions(strip(Decoder("attention").model()), how), self.bare)
            self.rewrite()
            self.assertEqual(names(onnx.load(self.cached).graph.input)[2:4],
                             ["position_ids", "cache_k_in_0"])
            self.in_ort(how)
            self.in_gqac(how)
        model = with_positions(strip(Decoder("attention").model()), "slice")
        for weight in model.graph.initializer:
            if weight.name == "all":
                weight.CopyFrom(numpy_helper.from_array(np.arange(64)[None] // 2, "all"))
        onnx.save(model, self.bare)
        self.check(harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached), 3,
                   "cut", "number of tokens in a call")
        onnx.save(with_positions(strip(Decoder("attention").model()), "doubled"), self.bare)
        self.check(harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", self.cached), 3,
                   "cut", "number of tokens in a call")

    def test_traced(self):
        """Exports of tracers without a cache: their attention is raised first. One that has a
        cache, also in simple ops, gets no other. Positions by Range or by sums of the mask; windows
        and lengths in the mask. One with only ids looks for packed sequences."""
        traced = harness.ROOT / "test" / "traced"
        self.ids = [i * 7 % 50 + 3 for i in range(TOKENS)]
        for name in ("llama-no-cache", "dynamo-llama-no-cache", "dynamo-mistral-no-cache",
                     "opt-no-cache"):
            self.bare = traced / name / "model.onnx"
            self.rewrite()
            self.assertEqual(names(onnx.load(self.cached).graph.input)[:4],
                             ["input_ids", "attention_mask", "position_ids", "cache_k_in_0"])
            self.in_ort(name)
            self.in_gqac(name)
            self.like_greedy(name)
        self.bare = traced / "dynamo-llama-ids-alone" / "model.onnx"
        self.rewrite()
        self.assertEqual(names(onnx.load(self.cached).graph.input)[:3],
                         ["input_ids", "position_ids", "cache_k_in_0"])
        self.in_ort("ids alone")
        self.in_gqac("ids alone")
        run = self.good("rewrite", traced / "llama" / "model.onnx", "--pass", "insert-kv", "-o",
                        self.cached)
        self.assertIn("nothing to do", run.out)

    def test_name_of_rows(self):
        """The number of cached rows has a name of its own, also if the tokens have the usual one."""
        self.save("attention")
        model = onnx.load(self.bare)
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "S":
                    dim.dim_param = "past_sequence_length"
        onnx.save(model, self.bare)
        self.rewrite()
        inputs = {v.name: v for v in onnx.load(self.cached).graph.input}
        caches = [name for name in inputs if name.startswith("cache_")]
        self.assertEqual(len(caches), 4)
        for name in caches:
            shape = inputs[name].type.tensor_type.shape.dim
            self.assertEqual(shape[2].dim_param, "past_sequence_length.1")
        fills = [f"{name}=1,2,4,8" for name in caches] + ["input_ids=1,3", "attention_mask=1,7:7"]
        self.good("run", self.cached, *(word for fill in fills for word in ("--fill", fill)))

    def test_external_weights(self):
        """A file with external weights is not rewritten in place, and neither are the weights."""
        onnx.save(strip(Decoder("attention").model()), self.bare, save_as_external_data=True,
                  location="bare.data", size_threshold=64)
        for out in (self.bare, self.dir / "bare.data"):
            run = harness.gqac("rewrite", self.bare, "--pass", "insert-kv", "-o", out)
            self.check(run, 2, "would overwrite")
        self.rewrite()
        self.in_gqac("external")

    def test_builder_export(self):
        """GroupQueryAttention with its lengths from the mask."""
        whole = onnx.load(harness.model("llama"))
        onnx.save(strip(whole), self.bare)
        self.rewrite()
        self.ids = [i * 7 % 50 + 3 for i in range(TOKENS)]
        self.in_ort("llama")
        self.in_gqac("llama")


def add_tests():
    """Adds a method for each kind."""
    for kind in KINDS:
        def good(self, kind=kind):
            self.whole(kind)
        setattr(InsertKv, f"test_n10_{kind}", good)


add_tests()

if __name__ == "__main__":
    sys.exit(harness.main())
