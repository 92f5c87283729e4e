"""The small valid models from which the bad ones are made, and the class for rows of the corpus."""

from dataclasses import dataclass
from typing import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

F32, F16, I32, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64


@dataclass
class Row:
    """One bad file and its valid twin. bad(folder) and twin(folder) write folder/model.onnx."""

    name: str
    kind: str  # wire, tensors, external, graph, attention
    word: str  # must be in the message, in any case
    bad: Callable
    twin: Callable
    verb: str = "inspect"  # "run" gets folder/in as its inputs
    code: int = 3
    twin_code: int = 0


def save(made, folder):
    """Write a ModelProto or bytes as folder/model.onnx."""
    data = made if isinstance(made, bytes) else made.SerializeToString()
    (folder / "model.onnx").write_bytes(data)


def file(make, *args, **more):
    """Builder that writes the result of make(*args, **more)."""
    return lambda folder: save(make(*args, **more), folder)


def weights(shape, seed=1):
    """Random fp32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(name, array):
    """TensorProto with raw data."""
    return numpy_helper.from_array(np.asarray(array, order="C"), name)


def info(name, dtype=F32, shape=None):
    """ValueInfoProto."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, initializers=(), opset=17, functions=(), domains=()):
    """ModelProto with IR version 10."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    opsets += [helper.make_opsetid(d, 1) for d in domains]
    made = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    made.ir_version = 10
    return made


def mlp(change=None):
    """x [B,8] → MatMul w [8,4] → Add b [4] → Relu → y; change(model) edits it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="matmul"),
             helper.make_node("Add", ["a", "b"], ["c"], name="add"),
             helper.make_node("Relu", ["c"], ["y"], name="relu")]
    made = model(nodes, [info("x", F32, ["B", 8])], [info("y", F32, ["B", 4])],
                 [tensor("w", weights((8, 4))), tensor("b", weights(4))])
    if change:
        change(made)
    return made


def one(op, inputs, outputs=("y",), constants=None, shapes=None, opset=17, domain="", **attrs):
    """A single node. Names that are not constants are fp32 inputs of shapes[name] or [B,4]."""
    constants, shapes = constants or {}, shapes or {}
    made = helper.make_node(op, list(inputs), list(outputs), name="node", domain=domain, **attrs)
    ins = [n for n in dict.fromkeys(inputs) if n and n not in constants]
    ins = [info(n, *spec(shapes.get(n, ["B", 4]))) for n in ins]
    outs = [info(n, *spec(shapes.get(n, F32))) for n in outputs if n]
    return model([made], ins, outs, [tensor(n, a) for n, a in constants.items()], opset)


def spec(what):
    """(dtype, shape) from a shape, a dtype or both."""
    if isinstance(what, tuple):
        return what
    return (F32, what) if isinstance(what, list) else (what, None)


# ---- attention -----------------------------------------------------------------------------------

HEADS, KV_HEADS, HEAD, ROPE = 4, 2, 16, 12
GQA_INPUTS = ("query key value past_key past_value seqlens_k total_sequence_length cos_cache "
              "sin_cache position_ids attention_bias head_sink k_scale v_scale q_norm_weight "
              "k_norm_weight").split()
GQA_TYPES = {"seqlens_k": (I32, ["B"]), "total_sequence_length": (I32, []),
             "position_ids": (I64, ["B", "S"])}


def gqa(attrs=None, given=None, drop=(), head=HEAD, rope=ROPE, past=HEAD, outputs=3, **types):
    """GroupQueryAttention with rotary, past and present.

    attrs replaces attributes (None removes them), given adds optional inputs as constants, drop
    removes inputs, types replaces (dtype, shape) of inputs."""
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1, **(attrs or {})}
    attributes = {k: v for k, v in attributes.items() if v is not None}
    angles = weights((rope, head // 2), 7)
    constants = {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles), **(given or {})}
    constants = {k: v for k, v in constants.items() if k not in drop}
    declared = {"query": (F32, ["B", "S", HEADS * head]), "key": (F32, ["B", "S", KV_HEADS * head]),
                "value": (F32, ["B", "S", KV_HEADS * head]),
                "past_key": (F32, ["B", KV_HEADS, "P", past]),
                "past_value": (F32, ["B", KV_HEADS, "P", past]), **GQA_TYPES, **types}
    used = [n for n in GQA_INPUTS if (n in declared and n != "position_ids" or n in constants
                                      or n in types) and n not in drop]
    names = [n if n in used else "" for n in GQA_INPUTS]
    while names and not names[-1]:
        names.pop()
    results = ["output", "present_key", "present_value", "output_qk"][:outputs]
    node = helper.make_node("GroupQueryAttention", names, results, name="attention",
                            domain="com.microsoft", **attributes)
    ins = [info(n, *declared[n]) for n in used if n not in constants]
    return model([node], ins, [info(n) for n in results],
                 [tensor(n, np.asarray(a, np.float32)) for n, a in constants.items()])


def gqa_inputs(folder, batch=1, new=3, past=0, seqlens=None, total=None, **replace):
    """Inputs of one call as folder/in/*.npy; by default a chunk of `new` tokens after `past`
    rows."""
    total = past + new if total is None else total
    seqlens = [past + new - 1] * batch if seqlens is None else seqlens
    made = {"query": weights((batch, new, HEADS * HEAD)),
            "key": weights((batch, new, KV_HEADS * HEAD), 2),
            "value": weights((batch, new, KV_HEADS * HEAD), 3),
            "past_key": weights((batch, KV_HEADS, past, HEAD), 4),
            "past_value": weights((batch, KV_HEADS, past, HEAD), 5),
            "seqlens_k": np.array(seqlens, np.int32),
            "total_sequence_length": np.array(total, np.int32), **replace}
    (folder / "in").mkdir(exist_ok=True)
    for name, value in made.items():
        if value is not None:
            np.save(folder / "in" / f"{name}.npy", value)


def gqa_call(change=None, **inputs):
    """Builder of a GQA model with the inputs of one call; change: arguments of gqa()."""
    def build(folder):
        save(gqa(**(change or {})), folder)
        gqa_inputs(folder, **inputs)
    return build
