#!/usr/bin/env python3
"""Ops of exported language models, compared with ONNX Runtime: random nodes, one model each.

    python test/python/test_ops_ort.py        (GQAC_TEST_SEED chooses other cases)

Nodes that ONNX Runtime refuses are counted and skipped; enough of each op must have been compared.
"""

import random
import sys
import unittest

import numpy as np
from onnx import TensorProto, helper

import harness
import ortnodes
from ortnodes import FULL, Node, Nodes, floats

COUNT = 300 if FULL else 30


def codes(rng, kind, *shape):
    """Any value of an integer type."""
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def scale_shape(pick, shape, attributes):
    """One of the granularities, by the attributes."""
    form = pick.choice(["tensor", "axis", "blocks"])
    axis = pick.randrange(len(shape))
    if form == "tensor":
        return ()
    attributes["axis"] = axis - len(shape) * pick.randint(0, 1)
    if form == "axis":
        return (shape[axis],)
    attributes["block_size"] = pick.randint(1, shape[axis])
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // attributes["block_size"])
    return tuple(blocks)


def dequantize(rng, pick):
    """A random DequantizeLinear."""
    shape = tuple(pick.randint(1, 9) for _ in range(pick.randint(2, 4)))
    kind, attributes = pick.choice([np.int8, np.uint8, np.int16, np.uint16]), {}
    size = scale_shape(pick, shape, attributes)
    inputs = {"x": codes(rng, kind, *shape), "s": floats(rng, *size) * np.float32(0.1),
              "z": codes(rng, kind, *size) if pick.randint(0, 1) else None}
    inputs["s"] = np.asarray(inputs["s"], np.float32)
    inputs["z"] = None if inputs["z"] is None else np.asarray(inputs["z"], kind)
    return Node("DequantizeLinear", "", inputs, ["y"], **attributes)


def quantize(rng, pick):
    """A random QuantizeLinear; some values exceed the codes."""
    shape = tuple(pick.randint(1, 9) for _ in range(pick.randint(2, 4)))
    kind, attributes = pick.choice([np.int8, np.uint8, np.int16, np.uint16]), {}
    size = scale_shape(pick, shape, attributes)
    spread = 2.0 if kind in (np.int8, np.uint8) else 0.01
    zero = pick.randint(0, 1) or kind != np.uint8
    inputs = {"x": floats(rng, *shape) * 99,
              "s": np.asarray((rng.random(size) + 0.1) * spread, np.float32),
              "z": np.asarray(codes(rng, kind, *size), kind) if zero else None}
    types = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int16: TensorProto.INT16,
             np.uint16: TensorProto.UINT16}
    return Node("QuantizeLinear", "", inputs, [("y", types[kind])], **attributes)


def dynamic(rng, pick):
    """A random DynamicQuantizeLinear: values about any centre, or all on one side of 0."""
    shape = tuple(pick.randint(1, 30) for _ in range(pick.randint(1, 3)))
    x = (floats(rng, *shape) + pick.choice([0, 3, -9])) * pick.choice([1, 100, 0])
    return Node("DynamicQuantizeLinear", "", {"x": x.astype(np.float32)},
                [("y", TensorProto.UINT8), "s", ("z", TensorProto.UINT8)])


def matmul_integer(rng, pick):
    """A random MatMulInteger, with all forms of zero points."""
    batch = [(), (2,), (3, 2)][pick.randint(0, 2)]
    m, k, n = pick.randint(1, 9), pick.randint(1, 300), pick.choice([1, 5, 64, 300])
    a, b = (pick.choice([np.int8, np.uint8]) for _ in range(2))
    a_zero = pick.choice([None, (), (1,), (m,), (*batch, m, 1)])
    b_zero = pick.choice([None, (), (1,), (n,)])
    inputs = {"a": codes(rng, a, *batch, m, k),
              "b": codes(rng, b, *(batch if pick.randint(0, 1) else ()), k, n),
              "az": None if a_zero is None else np.asarray(codes(rng, a, *a_zero), a),
              "bz": None if b_zero is None else np.asarray(codes(rng, b, *b_zero), b)}
    return Node("MatMulInteger", "", inputs, [("y", TensorProto.INT32)])


def half(pick, values, least=0.5):
    """The values, or in half of the cases None."""
    return values if pick.random() < least else None


def causal_conv(rng, pick):
    """A random CausalConvWithState of com.microsoft."""
    batch, channels, rows = pick.randint(1, 3), pick.randint(1, 9), pick.randint(1, 12)
    taps, dilation = pick.randint(2, 5), pick.choice([1, 1, 2])
    inputs = {"x": floats(rng, batch, channels, rows), "w": floats(rng, channels, 1, taps),
              "b": half(pick, floats(rng, channels)),
              "p": half(pick, floats(rng, batch, channels, (taps - 1) * dilation))}
    return Node("CausalConvWithState", "com.microsoft", inputs, ["y", "present"],
                activation=pick.choice(["none", "silu", "swish"]), dilation=dilation)


def linear_attention(rng, pick):
    """A random LinearAttention of com.microsoft."""
    batch, rows, kv = pick.randint(1, 2), pick.randint(1, 9), pick.randint(1, 3)
    heads = kv * pick.randint(1, 3)
    dk, dv = pick.choice([4, 8, 16]), pick.choice([4, 8, 16])
    rule = pick.choice(["linear", "gated", "delta", "gated_delta"])
    unit = floats(rng, batch, rows, kv, dk)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    inputs = {"q": floats(rng, batch, rows, heads * dk), "k": unit.reshape(batch, rows, kv * dk),
              "v": floats(rng, batch, rows, kv * dv),
              "p": half(pick, floats(rng, batch, kv, dk, dv), 0.7), "g": None, "beta": None}
    if "gated" in rule:
        inputs["g"] = -np.abs(floats(rng, batch, rows, kv * pick.choice([1, dk])))
    if "delta" in rule:
        inputs["beta"] = rng.random((batch, rows, pick.choice([1, kv]))).astype(np.float32)
    extra = {"scale": 0.7} if pick.randint(0, 1) else {}
    return Node("LinearAttention", "com.microsoft", inputs, ["y", "present"], q_num_heads=heads,
                kv_num_heads=kv, update_rule=rule, **extra)


def gate(rng, pick):
    """A random LinearAttentionGate."""
    batch, rows, heads = pick.randint(1, 3), pick.randint(1, 9), pick.randint(1, 20)
    b = half(pick, floats(rng, batch, rows, heads) * 4)
    inputs = {"a": floats(rng, batch, rows, heads) * 9, "t": floats(rng, heads),
              "s": -np.abs(floats(rng, heads)), "b": b}
    return Node("LinearAttentionGate", "com.microsoft", inputs,
                ["decay"] if b is None else ["decay", "beta"])


def gated_norm(rng, pick):
    """A random GatedRMSNorm over groups of the last axis."""
    size, shape = pick.choice([4, 16, 24]), [pick.randint(1, 5), pick.randint(1, 5)]
    shape.append(size * pick.randint(1, 3))
    inputs = {"x": floats(rng, *shape), "s": floats(rng, size), "g": floats(rng, *shape) * 3}
    return Node("GatedRMSNorm", "com.microsoft", inputs, ["y"],
                activation=pick.choice(["silu", "swish", "sigmoid"]), epsilon=1e-4)


def wide_norm(rng, pick):
    """A random norm whose scale and bias have axes before those of the norm."""
    shape = [pick.randint(1, 3), pick.randint(1, 5), pick.randint(1, 4), pick.choice([5, 16, 33])]
    axis = pick.choice([-1, -1, 3, -2])
    first = axis if axis > 0 else axis + 4

    def weights():
        begin = pick.randint(0, first)
        last = pick.randint(begin, first)
        return floats(rng, *[1 if last <= i < first else shape[i] for i in range(begin, 4)])

    inputs = {"x": floats(rng, *shape), "s": weights()}
    layer = pick.randint(0, 2)
    if layer:
        inputs["b"] = half(pick, weights())
    return Node("LayerNormalization" if layer else "RMSNormalization", "", inputs, ["y"], axis=axis,
                epsilon=1e-3)


def gated_add(rng, pick):
    """A random GatedAdd."""
    shape = [pick.randint(1, 5) for _ in range(pick.randint(0, 2))] + [pick.randint(1, 40)]
    inputs = {n: floats(rng, *shape) for n in "xy"} | {"g": floats(rng, *shape[:-1], 1)}
    kind, code = pick.choice([(np.float32, TensorProto.FLOAT), (np.float16, TensorProto.FLOAT16)])
    return Node("GatedAdd", "com.microsoft", {n: v.astype(kind) for n, v in inputs.items()},
                [("o", code)])


def router(pick, experts):
    """The attributes common to both mixtures of experts."""
    kind = pick.choice(["silu", "relu", "gelu", "swiglu", "swiglu", "identity"])
    attributes = {"k": pick.randint(1, min(3, experts)), "activation_type": kind,
                  "normalize_routing_weights": pick.randint(0, 1)}
    if kind == "swiglu":
        attributes |= {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0,
                       "swiglu_limit": 0.8}
    return attributes


def moe(rng, pick):
    """A random MoE."""
    rows, hidden, inner = pick.randint(1, 9), pick.choice([8, 20, 48]), pick.choice([8, 24])
    experts = pick.randint(2, 8)
    attributes = router(pick, experts)
    wide = inner * (2 if "swiglu_fusion" in attributes else 1)
    inputs = {"x": floats(rng, rows, hidden), "r": floats(rng, rows, experts),
              "w1": floats(rng, experts, wide, hidden) * np.float32(0.3),
              "b1": half(pick, floats(rng, experts, wide)),
              "w2": floats(rng, experts, hidden, inner) * np.float32(0.3),
              "b2": half(pick, floats(rng, experts, hidden))}
    return Node("MoE", "com.microsoft", inputs, ["y"], **attributes)


def qmoe(rng, pick):
    """A random QMoE with 4-bit weights in blocks, or one block for each row. The weights of the
    experts are normalised, which ONNX Runtime does whatever the attribute says."""
    rows, hidden, inner, experts = pick.randint(1, 9), 64, pick.choice([32, 96]), pick.randint(2, 6)
    attributes = router(pick, experts) | {"expert_weight_bits": 4, "normalize_routing_weights": 1}
    wide = inner * (2 if "swiglu_fusion" in attributes else 1)
    block = pick.choice([0, 16, 32])
    inputs = {"x": floats(rng, rows, hidden), "r": floats(rng, rows, experts)}
    for name, n, k in (("1", wide, hidden), ("2", hidden, inner)):
        inputs["w" + name] = codes(rng, np.uint8, experts, n, k // 2)
        size = (experts, n, k // block) if block else (experts, n)
        inputs["s" + name] = (rng.random(size) * 0.05).astype(np.float32)
        inputs["b" + name] = half(pick, floats(rng, experts, n))
    if block:
        attributes["block_size"] = block
    return Node("QMoE", "com.microsoft", inputs, ["y"], **attributes)


def bnb4(rng, pick):
    """A random MatMulBnb4."""
    k, n, block = pick.choice([32, 96, 130]), pick.choice([3, 16, 40]), pick.choice([16, 64])
    inputs = {"a": floats(rng, pick.randint(1, 6), k), "b": codes(rng, np.uint8, (n * k + 1) // 2),
              "m": rng.random(-(-n * k // block)).astype(np.float32)}
    return Node("MatMulBnb4", "com.microsoft", inputs, ["y"], K=k, N=n, block_size=block,
                quant_type=pick.randint(0, 1))


def gelu(rng, pick):
    """A Gelu of com.microsoft, with or without a bias."""
    width = pick.randint(1, 40)
    inputs = {"x": floats(rng, pick.randint(1, 5), width) * 3}
    if pick.randint(0, 1):
        return Node("Gelu", "com.microsoft", inputs, ["y"])
    return Node("BiasGelu", "com.microsoft", inputs | {"b": floats(rng, width)}, ["y"])


def embed(rng, pick):
    """A random EmbedLayerNormalization."""
    batch, rows, width = pick.randint(1, 3), pick.randint(1, 9), pick.choice([4, 16])
    ids = lambda top: rng.integers(0, top, (batch, rows)).astype(np.int32) # noqa: E731
    segments = pick.randint(0, 1)
    mask = (np.arange(rows) < rng.integers(1, rows + 1, (batch, 1))).astype(np.int32)
    inputs = {"ids": ids(20), "segments": ids(3) if segments else None,
              "word": floats(rng, 20, width), "position": floats(rng, 10, width),
              "segment": floats(rng, 3, width) if segments else None,
              "gamma": floats(rng, width), "beta": floats(rng, width),
              "mask": half(pick, mask), "places": half(pick, ids(10))}
    return Node("EmbedLayerNormalization", "com.microsoft", inputs,
                ["y", ("mask_index", TensorProto.INT32), "sum"], epsilon=1e-5)


def integer_to_float(rng, pick):
    """A random MatMulIntegerToFloat or DynamicQuantizeMatMul. The codes of both operands are u8, or
    small: otherwise sums of ONNX Runtime saturate."""
    m, k, n = pick.randint(1, 6), pick.randint(1, 80), pick.randint(1, 40)
    size = pick.choice([(), (n,)])
    weights = {"b": codes(rng, np.uint8, k, n),
               "s": np.asarray(rng.random(size) + 0.1, np.float32),
               "z": half(pick, np.asarray(codes(rng, np.uint8, *size), np.uint8))}
    bias = {"bias": half(pick, floats(rng, n))}
    if pick.randint(0, 1):
        return Node("DynamicQuantizeMatMul", "com.microsoft",
                    {"a": floats(rng, m, k)} | weights | bias, ["y"])
    inputs = {"a": codes(rng, np.uint8, m, k), "b": weights["b"],
              "as": np.asarray(0.02, np.float32), "s": weights["s"],
              "az": half(pick, np.asarray(pick.randint(0, 255), np.uint8)), "z": weights["z"]}
    return Node("MatMulIntegerToFloat", "com.microsoft", inputs | bias, ["y"])


EQUATIONS = ["ij->", "ij->ji", "i,i", "i,j->ij", "ij,jk", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->ikb",
             "bshd,bthd->bhst", "bhst,bthd->bshd", "nbts,bds->btdn", "abc,cd,de->abe", "ab,bc,ac->",
             "ij,j,i->ij", "abcd,dcf->fb", "a,b,c->cab", "...ij,...jk->...ik", "...i->...", "i...->i",
             "b...i,ij->b...j", "ab,cd->da", "bqhd,khd->bhqk", "ijk->", "ij , jk -> ki"]


def einsum(rng, pick):
    """A random Einsum; each letter has the same length everywhere, an ellipsis is one axis or
    two."""
    equation = pick.choice(EQUATIONS)
    sizes = {c: pick.randint(1, 5) for c in "abcdefhijknqst"}
    dots = [pick.randint(1, 4) for _ in range(pick.randint(1, 2))]
    terms = equation.replace(" ", "").split("->")[0].split(",")
    shapes = [[d for part in term.replace("...", ".")
               for d in (dots if part == "." else [sizes[part]])] for term in terms]
    return Node("Einsum", "", {f"x{i}": floats(rng, *s) for i, s in enumerate(shapes)}, ["y"],
                equation=equation)


def einsum_ones(rng, pick):
    """A random Einsum of two operands, where any letter may have length 1 in one operand."""
    equation = pick.choice(["ij,ij->", "bij,bij->b", "ij,jk->ik", "i,i", "bijk,bkji->b", "ij,ij->ij",
                            "bhqd,bhkd->bhqk", "abij,bija->a", "abcdefg,abcdefg->gfedcba"])
    sizes = {c: pick.randint(1, 5) for c in "abcdefghijkq"}
    shapes = [[pick.choice([1, sizes[c], sizes[c]]) for c in term]
              for term in equation.split("->")[0].split(",")]
    return Node("Einsum", "", {f"x{i}": floats(rng, *s) for i, s in enumerate(shapes)}, ["y"],
                equation=equation)


def einsum_diagonal(rng, pick):
    """A random Einsum with a letter that occurs twice or three times in an operand."""
    equation = pick.choice(["ii->i", "ii->", "ii", "iij->ij", "iji->j", "bii->bi", "iii->i", "iijj->ij",
                            "iijj->", "ii,ij->j", "aij,jj->ai", "aba,bcc->ac", "...ii->...i"])
    sizes = {c: pick.randint(1, 5) for c in "abcij"}
    terms = equation.split("->")[0].replace("...", "b").split(",")
    return Node("Einsum", "", {f"x{n}": floats(rng, *(sizes[c] for c in term))
                               for n, term in enumerate(terms)}, ["y"], equation=equation)


def old_softmax(rng, pick):
    """A random Softmax, LogSoftmax or Hardmax whose axis divides the tensor into a matrix."""
    shape = [pick.randint(1, 5) for _ in range(pick.randint(2, 4))]
    axis = pick.choice([None, *range(-1, len(shape))])
    node = Node(pick.choice(["Softmax", "LogSoftmax", "Hardmax"]), "", {"x": floats(rng, *shape)},
                ["y"], **({} if axis is None else {"axis": axis}))
    node.opset = pick.choice([9, 11, 12])
    return node


def group_norm(rng, pick):
    """A random GroupNormalization."""
    groups = pick.randint(1, 4)
    channels = groups * pick.randint(1, 3)
    places = [pick.randint(1, 5) for _ in range(pick.randint(1, 3))]
    inputs = {"x": floats(rng, pick.randint(1, 3), channels, *places), "s": floats(rng, channels),
              "b": floats(rng, channels)}
    return Node("GroupNormalization", "", inputs, ["y"], num_groups=groups,
                **({"epsilon": 0.01} if pick.randint(0, 1) else {}))


def instance_norm(rng, pick):
    """A random InstanceNormalization of any opset."""
    channels = pick.randint(1, 7)
    places = [pick.randint(1, 5) for _ in range(pick.randint(1, 3))]
    node = Node("InstanceNormalization", "", {"x": floats(rng, pick.randint(1, 3), channels, *places),
                                              "s": floats(rng, channels), "b": floats(rng, channels)},
                ["y"], **({"epsilon": 0.01} if pick.randint(0, 1) else {}))
    node.opset = pick.choice([7, 17, 21, 22])
    return node


def fused_matmul(rng, pick):
    """A random FusedMatMul; one operand may have no batch, or be a vector, which is never
    transposed."""
    m, k, n = pick.randint(1, 6), pick.randint(1, 30), pick.randint(1, 20)
    batch = [pick.randint(1, 3) for _ in range(pick.randint(0, 2))]
    turned = [pick.randint(0, 1) for _ in range(2)]
    a = floats(rng, *batch, *((k, m) if turned[0] else (m, k)))
    b = floats(rng, *(batch if pick.randint(0, 1) else []), *((n, k) if turned[1] else (k, n)))
    vector = pick.choice([None, None, "a", None if turned[0] else "b"])
    a, b = (floats(rng, k) if vector == name else x for name, x in (("a", a), ("b", b)))
    moved = [x.ndim > 2 and pick.randint(0, 1) for x in (a, b)] # the first axis is moved, before
                                                                # the batch
    a, b = (np.ascontiguousarray(np.moveaxis(x, -2, 0)) if go else x
            for x, go in zip((a, b), moved))
    return Node("FusedMatMul", "com.microsoft", {"a": a, "b": b}, ["y"], transA=turned[0],
                transB=turned[1], transBatchA=int(moved[0]), transBatchB=int(moved[1]),
                alpha=pick.choice([1.0, 0.125, -3.7]))


def fused_gemm(rng, pick):
    """A random FusedGemm; its activation has attributes or defaults."""
    m, k, n = pick.randint(1, 6), pick.randint(1, 30), pick.randint(1, 20)
    turned = [pick.randint(0, 1) for _ in range(2)]
    inputs = {"a": floats(rng, *((k, m) if turned[0] else (m, k))),
              "b": floats(rng, *((n, k) if turned[1] else (k, n))),
              "c": pick.choice([None, floats(rng, n), floats(rng, m, 1)])}
    name, parts = pick.choice([
        ("Elu", "alpha"), ("HardSigmoid", "alpha beta"), ("LeakyRelu", "alpha"), ("Relu", ""),
        ("Selu", "alpha gamma"), ("Sigmoid", ""), ("Softplus", ""), ("Softsign", ""), ("Tanh", ""),
        ("ThresholdedRelu", "alpha")])
    attributes = {f"activation_{part}": pick.uniform(0.1, 0.9) for part in parts.split()}
    return Node("FusedGemm", "com.microsoft", inputs, ["y"], transA=turned[0], transB=turned[1],
                alpha=pick.choice([1.0, 0.5]), beta=pick.choice([1.0, -2.0]), activation=name,
                **attributes)


def qlinear_matmul(rng, pick):
    """A random QLinearMatMul; scales of b for the tensor or for columns. Codes of b are small:
    otherwise sums of ONNX Runtime saturate."""
    m, k, n = pick.randint(1, 6), pick.randint(1, 40), pick.randint(1, 20)
    kind = pick.choice([np.int8, np.uint8])
    b = rng.integers(0, 60, (k, n)).astype(kind)
    size = pick.choice([(), (n,)])
    one = lambda top: np.asarray(rng.integers(0, top), kind) # noqa: E731
    return Node("QLinearMatMul", "", {
        "a": codes(rng, kind, m, k), "as": np.asarray(0.02, np.float32), "az": one(9),
        "b": b, "bs": np.asarray(rng.random(size) * 0.1 + 0.01, np.float32),
        "bz": np.full(size, 7, kind), "ys": np.asarray(0.37, np.float32), "yz": one(100)},
        [("y", TensorProto.INT8 if kind == np.int8 else TensorProto.UINT8)])


def m_rotary(rng, pick):
    """A random MRotaryEmbedding: both layouts, 3-D and 4-D inputs, parts of heads."""
    batch, rows, heads = pick.randint(1, 3), pick.randint(1, 7), pick.choice([1, 2, 4])
    layout = pick.randint(0, 1)
    section = [pick.randint(1, 5) for _ in range(3)]
    if layout:  # height and width have at most every third column each
        section = [section[0] + max(section[1:]), *section[1:]]
    columns = sum(section)
    partial = pick.randint(0, 1)
    size = 2 * columns + (pick.choice([2, 6]) if partial else 0)
    flat = partial or pick.randint(0, 1)
    shape = (batch, rows, heads * size) if flat else (batch, heads, rows, size)
    angles = rng.random((40, columns)) * 6
    more = {"num_heads": heads} if flat else {}
    more |= {"rotary_embedding_dim": 2 * columns} if partial else {}
    return Node("MRotaryEmbedding", "com.microsoft", {
        "x": floats(rng, *shape), "p": rng.integers(0, 40, (3, batch, rows)),
        "c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}, ["y"],
        mrope_section=section, mrope_layout=layout, interleaved=pick.randint(0, 1), **more)


def scaled_rotary(rng, pick):
    """A random RotaryEmbedding with a scale, which has no effect."""
    batch, rows, heads, half = pick.randint(1, 3), pick.randint(1, 7), pick.randint(1, 4), 8
    angles = rng.random((40, half)) * 6
    return Node("RotaryEmbedding", "com.microsoft", {
        "x": floats(rng, batch, heads, rows, 2 * half), "p": rng.integers(0, 40, (batch, rows)),
        "c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}, ["y"],
        scale=pick.choice([0.5, 2.0, -1.0]), interleaved=pick.randint(0, 1))


def gather_codes(rng, pick):
    """A random GatherBlockQuantized of 2, 4 or 8 bits in u8, with and without zero points."""
    bits, block, rows = pick.choice([2, 2, 4, 8]), pick.choice([16, 32]), pick.randint(1, 9)
    blocks = pick.randint(1, 4)
    inputs = {"d": rng.integers(0, 256, (rows, blocks * block * bits // 8), dtype=np.uint8),
              "i": rng.integers(0, rows, (2, 3)), "s": floats(rng, rows, blocks)}
    if pick.randint(0, 1):
        inputs["z"] = rng.integers(0, 256, (rows, (blocks * bits + 7) // 8), dtype=np.uint8)
    return Node("GatherBlockQuantized", "com.microsoft", inputs, ["y"], bits=bits, block_size=block,
                gather_axis=0, quantize_axis=1)


def conv(rng, pick):
    """A random Conv of one to three spatial axes, often depthwise."""
    axes, groups = pick.randint(1, 3), pick.randint(1, 4)
    each, maps = pick.choice([1, 1, 2]), pick.choice([1, 1, 3])
    shape = [pick.randint(5, 9) for _ in range(axes)]
    taps = [pick.randint(1, 3) for _ in range(axes)]
    attributes = {"group": groups, "strides": [pick.randint(1, 3) for _ in range(axes)],
                  "dilations": [pick.randint(1, 2) for _ in range(axes)]}
    if pick.randint(0, 1):
        attributes["pads"] = [pick.randint(0, 3) for _ in range(2 * axes)]
    inputs = {"x": floats(rng, pick.randint(1, 2), groups * each, *shape),
              "w": floats(rng, groups * maps, each, *taps),
              "b": half(pick, floats(rng, groups * maps))}
    return Node("Conv", "", inputs, ["y"], **attributes)


def conv_integer(rng, pick):
    """A random Conv of unsigned codes; ONNX Runtime supports no signed ones, and one zero point for
    each operand."""
    node = conv(rng, pick)
    x, w = (rng.integers(0, 256, node.inputs[n].shape).astype(np.uint8) for n in "xw")
    zeros = {n: half(pick, np.array(rng.integers(0, 256), np.uint8)) for n in ("xz", "wz")}
    return Node("ConvInteger", "", {"x": x, "w": w} | zeros, [("y", TensorProto.INT32)],
                **node.attributes)


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipUnless(ortnodes.ort, "onnxruntime is not installed")
class Ops(Nodes):
    """One test for each op."""

    def test_dequantize(self):
        """By tensor, axis and block, with and without zero points."""
        self.compare(dequantize, 0.9, limit=0, count=COUNT)

    def test_quantize(self):
        """By tensor, axis and block; saturation."""
        self.compare(quantize, 0.9, limit=0, count=COUNT)

    def test_dynamic_quantize(self):
        """Codes, scale and zero point, all equal."""
        self.compare(dynamic, 0.9, limit=1e-7, count=COUNT)

    def test_matmul_integer(self):
        """Every element is exact. (ONNX Runtime's saturates without VNNI, so it is compared with
        NumPy.)"""
        rng, pick = np.random.default_rng(ortnodes.SEED), random.Random(ortnodes.SEED)
        for number in range(COUNT):
            node = matmul_integer(rng, pick)
            a, b, a_zero, b_zero = (None if v is None else v.astype(np.int64)
                                    for v in node.inputs.values())
            if a_zero is not None:
                a = a - (a_zero[:, None] if a_zero.ndim == 1 else a_zero)
            wanted = a @ (b if b_zero is None else b - b_zero)
            np.testing.assert_array_equal(self.ours(node)[0], wanted, f"case {number}: {node}")

    def test_causal_conv(self):
        """Past, bias, activation, dilation."""
        self.compare(causal_conv, 0.9, count=COUNT)

    def test_linear_attention(self):
        """Every rule, grouped heads, with and without a past."""
        self.compare(linear_attention, 0.9, count=COUNT)

    def test_linear_attention_gate(self):
        """Decay and rate."""
        self.compare(gate, 0.9, count=COUNT)

    def test_gated_rms_norm(self):
        """Groups of the last axis, both activations."""
        self.compare(gated_norm, 0.9, count=COUNT)

    def test_wide_norms(self):
        """Scales that also have an axis of heads, or other axes."""
        self.compare(wide_norm, 0.5, count=COUNT)

    def test_gated_add(self):
        """ONNX Runtime has no CPU kernel for it: the product is rounded, then the sum."""
        rng, pick = np.random.default_rng(ortnodes.SEED), random.Random(ortnodes.SEED)
        for number in range(COUNT):
            node = gated_add(rng, pick)
            x, y, gate = node.inputs.values()
            np.testing.assert_array_equal(self.ours(node)[0], x + y * gate, f"case {number}")

    def test_moe(self):
        """Every activation, routing with and without normalisation."""
        self.compare(moe, 0.5, count=COUNT)

    def test_qmoe(self):
        """4 bits, by row and by block."""
        self.compare(qmoe, 0.3, count=COUNT)

    def test_matmul_bnb4(self):
        """FP4 and NF4."""
        self.compare(bnb4, 0.9, count=COUNT)

    def test_gelu(self):
        """Gelu and BiasGelu."""
        self.compare(gelu, 0.9, count=COUNT)

    def test_embed(self):
        """Segments, mask, positions."""
        self.compare(embed, 0.9, count=COUNT)

    def test_integer_to_float(self):
        """Given and computed codes, scales for the tensor and for columns."""
        self.compare(integer_to_float, 0.9, count=COUNT)

    def test_einsum(self):
        """Products, sums, ellipses, outer products, three operands."""
        self.compare(einsum, 0.9, count=max(COUNT, 60))

    def test_einsum_types(self):
        """Integers and f64, which MatMul does not support, are exact; diagonals; empty sums."""
        rng = np.random.default_rng(3)
        for kind, made in ((np.int64, TensorProto.INT64), (np.float64, TensorProto.DOUBLE)):
            for equation in ("bij,bjk->bik", "ij,kj", "i,i->", "abc->ca", "ii->i", "aba,ca->bc"):
                terms = equation.split("->")[0].split(",")
                inputs = {f"x{i}": rng.integers(-9, 9, [3] * len(t)).astype(kind)
                          for i, t in enumerate(terms)}
                node = Node("Einsum", "", inputs, [("y", made)], equation=equation)
                np.testing.assert_array_equal(self.ours(node)[0],
                                              np.einsum(equation, *inputs.values()))
        for equation, a, b in (("ij,ij->i", (3, 0), (3, 0)), ("ij,jk->ik", (0, 4), (4, 2)),
                               ("ij,jk->ik", (2, 0), (0, 3)), ("bij,bij->", (2, 0, 3), (2, 0, 3))):
            inputs = {"x": floats(rng, *a), "z": floats(rng, *b)}
            got = self.ours(Node("Einsum", "", inputs, ["y"], equation=equation))[0]
            np.testing.assert_array_equal(got, np.einsum(equation, *inputs.values()))
        for equation, code in (("ii->i", 0), ("ij->ik", 3), ("i.j->i", 3), ("ij", 0)):
            node = Node("Einsum", "", {"x": floats(rng, 3, 3)}, ["y"], equation=equation)
            path = self.dir / "model.onnx"
            path.write_bytes(node.model().SerializeToString())
            np.save(self.dir / "x.npy", node.inputs["x"])
            self.check(harness.gqac("run", path, "--inputs", self.dir), code)

    def with_dims(self, node, dims, code, *words):
        """Runs the node with inputs that have these dims in the model; returns y if it runs."""
        model, path = node.model(), self.dir / "model.onnx"
        for value in model.graph.input:
            if value.name in dims:
                dtype = value.type.tensor_type.elem_type
                value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, dims[value.name]))
        path.write_bytes(model.SerializeToString())
        for name, value in node.feeds().items():
            np.save(self.dir / f"{name}.npy", value)
        self.check(harness.gqac("run", path, "--inputs", self.dir, "--output", self.dir / "out"),
                   code, *words)
        return None if code else np.load(self.dir / "out" / "y.npy")

    def test_einsum_lengths(self):
        """A length of 1 is broadcast; unknown lengths must agree at run time."""
        self.compare(einsum_ones, 0.9, count=max(COUNT, 60))
        rng = np.random.default_rng(5)
        names = {"x": ["p", "q"], "z": ["r", "s"]}
        for dims in (names, {"x": ["p", 6], "z": ["r", "s"]}, {"x": ["p", "q"], "z": ["q", "p"]}):
            for x, z, code in (((2, 6), (2, 6), 0), ((1, 6), (6, 1), 0), ((2, 6), (3, 4), 4)):
                if dims["z"][0] == "q" and x != z[::-1]:
                    continue
                inputs = {"x": floats(rng, *x), "z": floats(rng, *z)}
                node = Node("Einsum", "", inputs, ["y"], equation="ij,ij->")
                got = self.with_dims(node, dims, code)
                if not code:
                    expected = np.einsum("ij,ij->", inputs["x"], inputs["z"])
                    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        halves = {"x": np.float16([[300, 300]]), "z": np.float16([[300], [-300]])}
        node = Node("Einsum", "", halves, [("y", TensorProto.FLOAT16)], equation="ij,ij->")
        self.assertEqual(self.ours(node)[0], 0)  # products exceed f16

    def test_einsum_diagonals(self):
        """A letter twice in an operand; its axes must have the same length, also if it is
        unknown."""
        self.compare(einsum_diagonal, 0.9, count=max(COUNT, 60))
        for equation in ("ii->i", "ii", "iji->ji"):
            shape = (3, 3) if len(equation.split("->", maxsplit=1)[0]) == 2 else (3, 2, 3)
            x = np.arange(9 if len(shape) == 2 else 18, dtype=np.float32).reshape(shape)
            node = Node("Einsum", "", {"x": x}, ["y"], equation=equation)
            got = self.with_dims(node, {"x": list("pqr"[:len(shape)])}, 0)
            np.testing.assert_array_equal(got, np.einsum(equation, x))
        for x, code in (((3, 4), 4), ((1, 3), 4)):
            node = Node("Einsum", "", {"x": np.ones(x, np.float32)}, ["y"], equation="ii->i")
            self.with_dims(node, {"x": ["p", "q"]}, code)
            self.with_dims(node, {}, 3, "Einsum", "the same letter")

    def test_einsum_letters(self):
        """More letters than a tensor can have axes are refused, as are different lengths, by the
        name of Einsum."""
        for kind, made in ((np.float32, TensorProto.FLOAT), (np.int64, TensorProto.INT64)):
            inputs = {f"x{i}": np.ones([2] * n, kind) for i, n in enumerate((6, 6, 8))}
            node = Node("Einsum", "", inputs, [("y", made)],
                        equation="abcdef,ghijkl,abcdefgh->ijkl")
            self.with_dims(node, {}, 3, "Einsum", "12 letters")
        inputs = {"x": np.ones((2, 3), np.float32), "z": np.ones((4, 5), np.float32)}
        self.with_dims(Node("Einsum", "", inputs, ["y"], equation="ij,jk->ik"), {}, 3, "Einsum")

    def test_quantize_of_com_microsoft(self):
        """The same ops as in ONNX, under the older domain."""
        for make in (dequantize, quantize):
            def moved(rng, pick, make=make):
                node = make(rng, pick)
                node.domain = "com.microsoft"
                return node
            self.compare(moved, 0.5, count=COUNT)

    def test_conv_integer(self):
        """Codes, with and without zero points."""
        self.compare(conv_integer, 0.9, count=COUNT)
        for taps, code in ((9, 0), (10, 3)): # sums of 4095 products, and of too many
            x, w = (np.full((1, 455, n), 255, np.uint8) for n in (12, taps))
            node = Node("ConvInteger", "", {"x": x, "w": w}, [("y", TensorProto.INT32)])
            if code == 0:
                np.testing.assert_array_equal(self.ours(node)[0], 4095 * 255 * 255)
            else:
                self.with_dims(node, {}, code, "ConvInteger", "sums of 4550 products")

    def test_fused_gemm(self):
        """Every activation that ONNX Runtime fuses."""
        self.compare(fused_gemm, 0.9, count=COUNT)
        node = Node("FusedGemm", "com.microsoft", {x: np.ones((2, 2), np.float32) for x in "ab"},
                    ["y"], activation="Gelu")
        self.with_dims(node, {}, 3, "FusedGemm", "activation = 'Gelu'")

    def test_fused_matmul(self):
        """Both transposes, factors, batches, vectors."""
        self.compare(fused_matmul, 0.6, count=COUNT) # other cases move the batch
        node = Node("FusedMatMul", "com.microsoft",
                    {"x": np.ones((4, 3), np.float32), "z": np.ones(4, np.float32)}, ["y"], transA=1)
        self.with_dims(node, {}, 3, "FusedMatMul", "vector")

    def test_softmax_of_matrices(self):
        """Opsets before 13: all axes from the given one on are a row."""
        self.compare(old_softmax, 0.9, count=COUNT)

    def test_group_normalization(self):
        """Groups, with any number of spatial axes; by group, as before opset 21, it is refused."""
        self.compare(group_norm, 0.9, count=COUNT)
        x = np.ones((1, 4, 3), np.float32)
        node = Node("GroupNormalization", "", {"x": x, "s": x[0, :2, 0], "b": x[0, :2, 0]}, ["y"],
                    num_groups=2)
        node.opset = 18
        self.with_dims(node, {}, 3, "GroupNormalization", "for each group")
        # lengths that do not fit, known and unknown
        for c, n in ((4, 1), (4, 2), (4, 8), (4, 16), (3, 3), (1, 1)):
            feeds = {"x": np.ones((1, c, 4), np.float32), "s": np.ones(n, np.float32),
                     "b": np.ones(n, np.float32)}
            node = Node("GroupNormalization", "", feeds, ["y"], num_groups=2)
            self.with_dims(node, {}, 3, "GroupNormalization")
            for x in (["N", "C", "L"], ["N", c, "L"]):
                self.with_dims(node, {"x": x, "s": ["c"], "b": ["c"]}, 3 if x[1] == c and c % 2 else 4)

    def test_instance_normalization(self):
        """Each channel separately, with any number of spatial axes; lengths that do not fit, known
        and unknown."""
        self.compare(instance_norm, 0.9, count=COUNT)
        for c, n in ((4, 1), (4, 2), (4, 8), (1, 3)):
            node = Node("InstanceNormalization", "", {"x": np.ones((1, c, 4), np.float32),
                                                      "s": np.ones(n, np.float32),
                                                      "b": np.ones(n, np.float32)}, ["y"])
            self.with_dims(node, {}, 3, "InstanceNormalization")
            self.with_dims(node, {"x": ["N", c, "L"], "s": ["c"], "b": ["c"]}, 4)
        node = Node("InstanceNormalization", "", {"x": np.ones((2, 4), np.float32),
                                                  "s": np.ones(4, np.float32),
                                                  "b": np.ones(4, np.float32)}, ["y"])
        self.with_dims(node, {}, 3, "InstanceNormalization", "rank 2")

    def test_qlinear_matmul(self):
        """Codes of both signs, scales for the tensor and for columns."""
        self.compare(qlinear_matmul, 0.5, count=COUNT)

    def test_qlinear_matmul_rows(self):
        """A scale or zero point for each row is refused, also if only the data show it."""
        one, zero, codes_of = np.float32([1]), np.uint8([0]), np.full((3, 3), 2, np.uint8)
        inputs = {"a": codes_of, "as": one, "az": zero, "b": codes_of, "bs": one, "bz": zero,
                  "ys": one, "yz": zero}
        make = lambda more: Node("QLinearMatMul", "", inputs | more, # noqa: E731
                                 [("y", TensorProto.UINT8)])
        for name in ("as", "az", "ys", "yz"):
            many = {name: np.asarray([1, 2, 3], inputs[name].dtype)}
            np.testing.assert_array_equal(self.with_dims(make({}), {name: ["n"]}, 0), 12)
            self.with_dims(make(many), {name: ["n"]}, 4)
            self.with_dims(make(many), {}, 3, "QLinearMatMul")

    def test_m_rotary(self):
        """Columns for time, height and width."""
        self.compare(m_rotary, 0.9, count=COUNT)

    def test_scaled_rotary(self):
        """RotaryEmbedding with a scale: the same as without."""
        self.compare(scaled_rotary, 0.9, count=COUNT)

    def test_gather_codes(self):
        """GatherBlockQuantized of 2, 4 and 8 bits."""
        self.compare(gather_codes, 0.9, limit=0, count=COUNT)

    def test_m_rotary_refused(self):
        """Attributes that no layout supports, by name."""
        kinds = ((TensorProto.FLOAT, [1, 2, 12]), (TensorProto.INT64, [3, 1, 2]),
                 (TensorProto.FLOAT, [9, 3]), (TensorProto.FLOAT, [9, 3]))
        inputs = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in zip("xpcs", kinds)]
        for word, more in (("interleaved", {"interleaved": 2}), ("num_heads", {"num_heads": -1}),
                           ("rotary_embedding_dim", {"rotary_embedding_dim": 6}),
                           ("rotary_embedding_dim", {"rotary_embedding_dim": 4, "num_heads": 2}),
                           ("scale", {"scale": 2.0}), ("mrope_layout", {"mrope_layout": 2}),
                           ("mrope_section", {"mrope_section": [1, 2]})):
            node = helper.make_node("MRotaryEmbedding", list("xpcs"), ["y"], domain="com.microsoft",
                                    **({"mrope_section": [1, 1, 1]} | more))
            graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(
                "y", TensorProto.FLOAT, None)])
            made = helper.make_model(graph, ir_version=10, opset_imports=[
                helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])
            path = self.dir / "m.onnx"
            path.write_bytes(made.SerializeToString())
            self.check(harness.gqac("inspect", path), 3, word)

    def test_reduce_of_nothing(self):
        """Without an axis to reduce, each element is a row, and is nevertheless squared or made
        positive; NaN next to infinities is kept."""
        for op in ("L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Sum", "Mean", "Max"):
            for x in ([1, -2, 3], -3, [np.nan, np.inf, 1], [np.inf, -np.inf]):
                for noop in (0, 1):
                    node = Node(f"Reduce{op}", "", {"x": np.array(x, np.float32)}, ["y"],
                                noop_with_empty_axes=noop)
                    wanted = node.peer()[0]
                    with np.errstate(all="ignore"):
                        np.testing.assert_allclose(self.ours(node)[0], wanted, 1e-6, 0,
                                                   err_msg=f"{op} {x} {noop}")

    def test_conv(self):
        """Strides, pads, dilations, groups."""
        self.compare(conv, 0.9, count=COUNT)


if __name__ == "__main__":
    sys.exit(harness.main())
