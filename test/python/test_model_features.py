#!/usr/bin/env python3
"""Does every feature of the test models reach their logits?

A model in which a window, a softcap, a bias or a rotary table could be ignored without a visible
change would let an engine pass that does ignore it. So each feature is removed from (or altered in)
a copy of the file, ONNX Runtime runs both, and max|Δlogits| must exceed MARGIN times the tolerance
that the end-to-end tests use. The stored reference data are checked too.

    python test/python/test_model_features.py        (needs onnx, onnxruntime, numpy)
"""

import copy
import sys
import unittest
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ortref  # noqa: E402  (needs the path)

MODELS = Path(__file__).resolve().parent.parent / "models"
TOLERANCE = {"fp32": 2e-5, "fp16": 5e-3, "int4": 2e-2}  # of max|logit|
MARGIN = 10


# ---- reading and editing graphs ------------------------------------------------------------------


def initializer(model, name):
    """The named initialiser."""
    return next(i for i in model.graph.initializer if i.name == name)


def edit(tensor, change):
    """Replace a TensorProto's values by change(values); dtype kept."""
    old = numpy_helper.to_array(tensor)
    new = np.ascontiguousarray(change(old.copy())).astype(old.dtype)
    tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))


def node(model, name):
    """The node of that exact name."""
    return next(n for n in model.graph.node if n.name == name)


def set_attribute(n, name, value):
    """Set or replace one attribute."""
    assert ortref.attribute(n, name) is not None, f"{n.name} has no {name}"
    for i, a in enumerate(n.attribute):
        if a.name == name:
            del n.attribute[i]
            break
    n.attribute.append(helper.make_attribute(name, value))


def bypass(model, n):
    """Let the users of a node's first output read its first input instead."""
    for user in model.graph.node:
        for i, name in enumerate(user.input):
            if name == n.output[0]:
                user.input[i] = n.input[0]


def rotary_tables(model, branch=None):
    """The cos and sin tensors: initialisers, or the constants of one branch of the LongRoPE If."""
    if branch is None:
        return [initializer(model, name) for name in ("cos_cache", "sin_cache")]
    choose = next(n for n in model.graph.node if n.op_type == "If")
    graph = next(a.g for a in choose.attribute if a.name == branch)
    by_output = {n.output[0]: n.attribute[0].t for n in graph.node}
    return [by_output[o.name] for o in graph.output]


def segments(model):
    """Column ranges of q, k and v in the packed projection."""
    gqa = ortref.gqa_nodes(model)[0]
    d = ortref.head_size(model)
    q, kv = (d * ortref.attribute(gqa, a) for a in ("num_heads", "kv_num_heads"))
    return {"q": (0, q), "k": (q, q + kv), "v": (q + kv, q + 2 * kv)}


def projection_tensors(model, layer):
    """[(tensor, axis)] of everything in a layer's packed projection that has one entry a column."""
    prefix = f"/model/layers.{layer}/attn/qkv_proj/"
    n = next(n for n in model.graph.node if n.name in (prefix + "MatMul", prefix + "MatMul_Q4"))
    axis = 1 if n.op_type == "MatMul" else 0
    found = [(initializer(model, name), axis) for name in n.input[1:] if name]
    found += [(initializer(model, a.input[1]), 0)
              for a in model.graph.node if a.name == prefix + "Add"]
    return found


# ---- features: each takes a copy of the model and damages one thing ------------------------------


def gqa_attribute(model, layer, name, value):
    """Another attribute value on one layer's GroupQueryAttention; value may be a function."""
    n = ortref.gqa_nodes(model)[layer]
    set_attribute(n, name, value(ortref.attribute(n, name)) if callable(value) else value)


def rotary_reversed(model, branch=None):
    """Columns (frequencies) in the wrong order."""
    for t in rotary_tables(model, branch):
        edit(t, lambda a: a[:, ::-1])


def rotary_column(model, column, branch=None):
    """One frequency does not rotate."""
    for t, still in zip(rotary_tables(model, branch), (1, 0), strict=True):
        def change(a, still=still):
            a[:, column] = still
            return a
        edit(t, change)


def rotary_full_width(model):
    """All channels rotate although the tables are narrower than half a head."""
    width = ortref.head_size(model) // 2
    for branch in ("then_branch", "else_branch"):
        for t in rotary_tables(model, branch):
            edit(t, lambda a: np.tile(a, (1, width // a.shape[1])))
    choose = next(n for n in model.graph.node if n.op_type == "If")
    for a in choose.attribute:
        for o in a.g.output:
            o.type.tensor_type.shape.dim[1].dim_value = width
        del a.g.value_info[:]
    keep = [v for v in model.graph.value_info if v.name not in choose.output]
    del model.graph.value_info[:]
    model.graph.value_info.extend(keep)


def long_rope_threshold(model, value):
    """The LongRoPE If compares with another length."""
    greater = next(n for n in model.graph.node if n.op_type == "Greater")
    constant = next(n for n in model.graph.node if greater.input[1] in n.output)
    edit(constant.attribute[0].t, lambda a: np.full_like(a, value))


def swap_kv_heads(model, layer, which):
    """Keys (or values, or both) of the two kv heads are exchanged."""
    d = ortref.head_size(model)
    for t, axis in projection_tensors(model, layer):
        def change(a, axis=axis):
            a = np.moveaxis(a, axis, 0)
            for part in which:
                lo, _ = segments(model)[part]
                a[lo:lo + 2 * d] = np.roll(a[lo:lo + 2 * d], d, axis=0)
            return np.moveaxis(a, 0, axis)
        edit(t, change)


def heads_modulo(model, layer):
    """Query head h reads kv head h mod Hkv instead of h div G: kv heads repeated in wrong order."""
    gqa = ortref.gqa_nodes(model)[layer]
    d = ortref.head_size(model)
    hq, hkv = (ortref.attribute(gqa, a) for a in ("num_heads", "kv_num_heads"))
    order = sorted(range(hq), key=lambda h: (h % hkv, h))  # slot s runs query head order[s]
    columns = np.concatenate([np.arange(h * d, h * d + d) for h in order])
    for t, axis in projection_tensors(model, layer):
        def change(a, axis=axis):
            a = np.moveaxis(a, axis, 0)
            a[:hq * d] = a[columns]
            return np.moveaxis(a, 0, axis)
        edit(t, change)
    permute_rows(model, gqa.output[0], order, columns)


def permute_rows(model, value, order, rows):
    """Permute the contraction index of the projection that reads value (blocks = heads in int4)."""
    user = next(n for n in model.graph.node if value in n.input)
    if user.op_type == "MatMul":
        edit(initializer(model, user.input[1]), lambda a: a[rows])
        return
    assert ortref.attribute(user, "block_size") == ortref.head_size(model)
    for name in user.input[1:3]:
        t = initializer(model, name)
        edit(t, lambda a: a.reshape(a.shape[0], len(order), -1)[:, order].reshape(a.shape))
    if len(user.input) > 3:
        edit(initializer(model, user.input[3]), partial(permute_nibbles, order=order))


def permute_nibbles(packed, order):
    """Permute 4-bit zero points, two in a byte, low half first."""
    flat = packed.reshape(-1, len(order) // 2)
    values = np.stack([flat & 15, flat >> 4], axis=-1).reshape(flat.shape[0], -1)[:, order]
    return (values[:, 0::2] | values[:, 1::2] << 4).reshape(packed.shape)


def weight_to_one(model, name):
    """A norm without its weight."""
    edit(initializer(model, name), np.ones_like)


def no_bias(model, layer, part):
    """One of the q, k, v biases is zero."""
    lo, hi = segments(model)[part]
    add = node(model, f"/model/layers.{layer}/attn/qkv_proj/Add")

    def change(a):
        a[lo:hi] = 0
        return a
    edit(initializer(model, add.input[1]), change)


def no_head_norm(model, layer, part):
    """The q or k norm is skipped altogether."""
    prefix = f"/model/layers.{layer}/attn/{part}_norm/"
    bypass(model, next(n for n in model.graph.node if n.name.startswith(prefix)
                       and n.op_type == "SimplifiedLayerNormalization"))


def epsilon(model, value):
    """Every norm uses another epsilon."""
    for n in model.graph.node:
        if n.op_type.endswith("SimplifiedLayerNormalization"):
            set_attribute(n, "epsilon", value)


def constant_to(model, consumer, value):
    """The scalar second operand of a node is replaced by value."""
    name = node(model, consumer).input[1]
    constant = next(n for n in model.graph.node if name in n.output)
    edit(constant.attribute[0].t, lambda a: np.full_like(a, value))


def no_final_softcap(model):
    """Div, Tanh and Mul after lm_head do nothing."""
    logits = next(n for n in model.graph.node if n.output and n.output[0] == "logits")
    division = node(model, "/lm_head/softcap/Div")
    for n in [n for n in model.graph.node if n.name.startswith("/lm_head/softcap/")]:
        model.graph.node.remove(n)
    model.graph.node.append(
        helper.make_node("Identity", [division.input[0]], ["logits"], name="/lm_head/identity"))
    assert logits.op_type == "Mul"


def gelu_erf(model):
    """Gelu with erf where the file has tanh."""
    for n in model.graph.node:
        if n.op_type == "Gelu":
            set_attribute(n, "approximate", "none")


def level(model, value):
    """Another accuracy_level on every MatMulNBits."""
    for n in model.graph.node:
        if n.op_type == "MatMulNBits":
            set_attribute(n, "accuracy_level", value)


def no_zero_points(model, suffix):
    """The zero points of one projection (in all layers) are removed, so that they are 8."""
    hits = [n for n in model.graph.node if n.op_type == "MatMulNBits" and suffix in n.name]
    assert hits and all(len(n.input) == 4 for n in hits)
    for n in hits:
        del n.input[3:]


def swap_nibbles(model, position):
    """High half first, in the packed weights (1) or zero points (3) of every MatMulNBits."""
    for n in model.graph.node:
        if n.op_type == "MatMulNBits":
            edit(initializer(model, n.input[position]), lambda a: a << 4 | a >> 4)


def both_layers(label, change, *args):
    """One feature for each of the two layers."""
    return {f"layer {i}: {label}": partial(change, layer=i, **dict(args)) for i in (0, 1)}


def attention_features(branch=None):
    """What every model has: rotary, scale, head mapping.

    Positions shifted by one for both queries and keys do not change the logits; only the stored
    present keys under ref/ detect that.
    """
    found = {
        "rotary: first column still": partial(rotary_column, column=0, branch=branch),
        "rotary: columns reversed": partial(rotary_reversed, branch=branch),
        "rotary: last column still": partial(rotary_column, column=-1, branch=branch),
    }
    for label, name, value in (("no rotary", "do_rotary", 0),
                               ("rotary interleaved", "rotary_interleaved", 1),
                               ("scale quartered", "scale", lambda s: s / 4)):
        found |= both_layers(label, gqa_attribute, ("name", name), ("value", value))
    for which in ("k", "v", "kv"):
        found |= both_layers(f"kv heads swapped in {which}", swap_kv_heads, ("which", which))
    found |= both_layers("query head h reads kv head h mod Hkv", heads_modulo)
    return found


def norm_features(*extra):
    """Each norm weight of a layer, and that of the final norm."""
    names = [f"model.layers.{i}.{n}.weight" for i in (0, 1)
             for n in ("input_layernorm", "post_attention_layernorm", *extra)]
    names.append("model.layers.2.final_norm_layernorm.weight")
    return {f"{name} = 1": partial(weight_to_one, name=name) for name in names}


def window_features(layers, width):
    """Window off, one too wide, one too narrow."""
    return {f"layer {i}: window {w}": partial(gqa_attribute, layer=i, name="local_window_size",
                                               value=w)
            for i in layers for w in (-1, width + 1, width - 1)}


def qwen2_features():
    """q, k and v biases."""
    biases = {}
    for part in "qkv":
        biases |= both_layers(f"no {part} bias", no_bias, ("part", part))
    return biases | {"epsilon 1e-5": partial(epsilon, value=1e-5)}


def qwen3_features():
    """q and k norm: weight and existence."""
    found = {}
    for part in "qk":
        found |= both_layers(f"no {part} norm", no_head_norm, ("part", part))
        for i in (0, 1):
            name = f"model.layers.{i}.attn.{part}_norm.layernorm.weight"
            found[f"{name} = 1"] = partial(weight_to_one, name=name)
    return found


def gemma2_features():
    """Softcaps, windows, extra norms, embedding scale, Gelu."""
    found = both_layers("no softcap", gqa_attribute, ("name", "softcap"), ("value", 0.0))
    found |= both_layers("scale 1/sqrt(D)", gqa_attribute, ("name", "scale"), ("value", 32**-0.5))
    found |= window_features([0], 16)
    found |= {
        "layer 1: window 16": partial(gqa_attribute, layer=1, name="local_window_size", value=16),
        "no final softcap": no_final_softcap,
        "embedding not scaled": partial(constant_to, consumer="/model/embed_tokens/Mul", value=1.0),
        "Gelu by erf": gelu_erf,
        "epsilon 1e-6": partial(epsilon, value=1e-6),
    }
    return found


def phi3_features():
    """LongRoPE: which table, how wide."""
    return {
        "long table below the threshold": partial(long_rope_threshold, value=10),
        "rotary: all channels": rotary_full_width,
    }


def zero_of(model, name, part):
    """Some of an initialiser is set to zero."""
    def change(a):
        a[part] = 0
        return a
    edit(initializer(model, name), change)


def without_input(model, op, position):
    """An optional input of every such node is removed."""
    for n in model.graph.node:
        if n.op_type == op:
            n.input[position] = ""


def attribute_of(model, op, name, value):
    """Another attribute value on every such node."""
    for n in model.graph.node:
        if n.op_type == op:
            set_attribute(n, name, value)


def high_half_first(model, op, position):
    """The two codes in every byte of a weight are exchanged."""
    for n in model.graph.node:
        if n.op_type == op:
            tensor = initializer(model, n.input[position])
            codes = np.frombuffer(tensor.raw_data, np.uint8)
            tensor.raw_data = (codes << 4 | codes >> 4).tobytes()


def rotate_too(model, layer):
    """A layer without rotary gets the rotary of the others."""
    gqa = ortref.gqa_nodes(model)
    set_attribute(gqa[layer], "do_rotary", 1)
    for i in (7, 8):
        gqa[layer].input[i] = gqa[0].input[i]


def gpt_oss_features():
    """Sinks, windows on even layers, the experts and how they are chosen."""
    attribute = partial(partial, attribute_of, op="QMoE")
    return window_features([0], 16) | {
        "layer 1: window 16": partial(gqa_attribute, layer=1, name="local_window_size", value=16),
        "no sinks": partial(without_input, op="GroupQueryAttention", position=11),
        "one expert": attribute(name="k", value=1),
        "alpha 1": attribute(name="activation_alpha", value=1.0),
        "beta 0": attribute(name="activation_beta", value=0.0),
        "limit 1": attribute(name="swiglu_limit", value=1.0),
        "no bias of fc1": partial(without_input, op="QMoE", position=4),
        "no bias of fc2": partial(without_input, op="QMoE", position=7),
        "fc1 high half first": partial(high_half_first, op="QMoE", position=2),
        "fc2 high half first": partial(high_half_first, op="QMoE", position=5),
    }


def lfm2_features():
    """Every tap of the convolutions, norms of q and k, the quantised embedding."""
    taps = {f"layer {i}: no tap {t}": partial(
        zero_of, name=f"model.layers.{i}.conv.conv.weight", part=np.s_[:, :, t])
        for i in (0, 2) for t in range(3)}
    norms = {f"layer {i}: no {part} norm": partial(no_head_norm, layer=i, part=part)
             for i in (1, 3) for part in "qk"}
    return taps | norms | {"weights high half first": partial(swap_nibbles, position=1)}


def qwen35_features():
    """Every tap of the convolutions, the gates of the recurrences, norms of q and k."""
    layer = "model.layers.{}.linear_attn."
    taps = {f"layer {i}: no tap {t}": partial(
        zero_of, name=layer.format(i) + "conv1d.weight", part=np.s_[:, :, t])
        for i in range(3) for t in range(4)}
    gates = {f"layer {i}: no {part}": partial(zero_of, name=layer.format(i) + part, part=np.s_[:])
             for i in range(3) for part in ("dt_bias", "neg_exp_A")}
    norms = {f"no {part} norm": partial(no_head_norm, layer=3, part=part) for part in "qk"}
    return taps | gates | norms | {"weights high half first": partial(swap_nibbles, position=1)}


FEATURES = {
    "llama": attention_features() | norm_features(),
    "llama-fp16": attention_features() | norm_features(),
    "llama-int4-acc1": attention_features() | norm_features() | {
        f"no zero points in {s}": partial(no_zero_points, suffix=s)
        for s in ("qkv_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
    } | {"packed weights high half first": partial(swap_nibbles, position=1),
         "zero points high half first": partial(swap_nibbles, position=3)},
    "llama-int4-acc4": attention_features() | norm_features() | {
        "packed weights high half first": partial(swap_nibbles, position=1)},
    "mistral": attention_features() | norm_features() | window_features([0, 1], 16),
    "qwen2": attention_features() | norm_features() | qwen2_features(),
    "qwen3": attention_features() | norm_features() | qwen3_features(),
    "phi3": attention_features("else_branch") | norm_features() | phi3_features(),
    "gemma2": attention_features()
    | norm_features("pre_feedforward_layernorm", "post_feedforward_layernorm") | gemma2_features(),
    "smollm3-qdq": {
        "layer 1 rotates": partial(rotate_too, layer=1),
        "weights high half first": partial(high_half_first, op="DequantizeLinear", position=0)},
    "gpt-oss": gpt_oss_features(),
    "lfm2": lfm2_features(),
    "qwen3.5": qwen35_features(),
}


# ---- the tests -----------------------------------------------------------------------------------


def precision(name):
    """fp32, fp16 or int4, from the model's name."""
    return next((p for p in ("fp16", "int4") if p in name), "fp32")


@cache
def load(name):
    """A model with its weights, and its reference ids and logits."""
    model = onnx.load(MODELS / name / "model.onnx")
    ref = MODELS / name / "ref"
    return model, ortref.load_ids(ref / "ids.txt"), np.load(ref / "logits.npy")


def damaged_scores(name, change, ids):
    """Logits of a copy after change."""
    model = copy.deepcopy(load(name)[0])
    change(model)
    return ortref.Runner(model).score(ids)


def relative(actual, expected):
    """max|Δ| over max|expected|."""
    assert np.isfinite(actual).all() and actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


class Features(unittest.TestCase):
    """Every feature matters; test methods are added below, one each."""

    def check(self, name, change):
        """The change must move the logits by more than MARGIN tolerances."""
        _, ids, logits = load(name)
        moved = relative(damaged_scores(name, change, ids), logits)
        floor = MARGIN * TOLERANCE[precision(name)]
        if "-v" in sys.argv:
            print(f"{moved / floor:8.2f} floors")
        self.assertGreater(moved, floor)

    def test_accuracy_level(self):
        """Level 4 quantises activations: far from level 0 on the scale of fp32 rounding."""
        _, ids, logits = load("llama-int4-acc4")
        for other in (0, 1):
            moved = relative(
                damaged_scores("llama-int4-acc4", partial(level, value=other), ids), logits)
            self.assertGreater(moved, 100 * TOLERANCE["fp32"])
        _, ids, logits = load("llama-int4-acc1")
        moved = relative(damaged_scores("llama-int4-acc1", partial(level, value=4), ids), logits)
        self.assertGreater(moved, 100 * TOLERANCE["fp32"])

    def test_long_rope_long_table(self):
        """Above the threshold the rows of the long table are used."""
        ref = MODELS / "phi3" / "ref"
        ids, logits = ortref.load_ids(ref / "ids_long.txt"), np.load(ref / "logits_long.npy")
        floor = MARGIN * TOLERANCE["fp32"]
        for change in (rotary_reversed, partial(rotary_column, column=-1)):
            moved = relative(
                damaged_scores("phi3", partial(change, branch="then_branch"), ids), logits)
            self.assertGreater(moved, floor)


class Reference(unittest.TestCase):
    """The stored data are the results of ONNX Runtime, however the tokens are split."""

    def check(self, name):
        """Full, 9 + 15 + rest, and every stored call."""
        _, ids, logits = load(name)
        runner = ortref.Runner(MODELS / name / "model.onnx")
        limit = TOLERANCE[precision(name)]
        self.assertLessEqual(relative(runner.score(ids), logits), limit)
        self.assertLessEqual(relative(runner.score(ids, [9, 15, len(ids) - 24]), logits), limit)
        for rows in (MODELS / name / "ref").glob("*/rows.txt"):
            with self.subTest(case=rows.parent.name):
                self.check_case(runner, rows, limit)

    def check_case(self, runner, rows, limit):
        """One stored call: valid rows of every output."""
        feed = {f.stem: np.load(f) for f in (rows.parent / "inputs").glob("*.npy")}
        result = runner.run(feed)
        lengths = [list(map(int, line.split())) for line in rows.read_text().splitlines()]
        for name, value in result.items():
            expected = np.load(rows.parent / "expect" / f"{name}.npy")
            self.assertEqual((value.dtype, value.shape), (expected.dtype, expected.shape))
            for b, (past, new) in enumerate(lengths):
                part = np.s_[b, :new] if name == "logits" else np.s_[b, :, :past + new]
                pair = (t[part].astype(np.float32) for t in (value, expected))
                self.assertLessEqual(relative(*pair), limit)

    def test_tails(self):
        """Last rows of the 600-token runs, and the LongRoPE run."""
        for name, ids, logits in (("llama", "ids600.txt", "logits600_tail.npy"),
                                  ("gemma2", "ids600.txt", "logits600_tail.npy"),
                                  ("phi3", "ids_long.txt", "logits_long.npy")):
            ref = MODELS / name / "ref"
            expected = np.load(ref / logits)
            got = ortref.Runner(MODELS / name / "model.onnx").score(ortref.load_ids(ref / ids))
            self.assertLessEqual(relative(got[-len(expected):], expected), TOLERANCE["fp32"])


def add_tests():
    """Adds a method for each feature and for each model's reference data."""
    for name, features in FEATURES.items():
        for label, change in features.items():
            def test(self, name=name, change=change):
                self.check(name, change)
            test.__doc__ = f"{name}: {label}"
            setattr(Features, f"test {name}: {label}", test)

        def stored(self, name=name):
            self.check(name)
        stored.__doc__ = f"{name}: reference data"
        setattr(Reference, f"test {name}", stored)


add_tests()


def main():
    """Run everything; the last line is what the test driver reads."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(
        stream=sys.stdout, verbosity=2 if "-v" in sys.argv else 1).run(suite)
    failed = len({t.id() for t, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
