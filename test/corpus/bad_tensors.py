"""Bad files, class tensors: initialisers whose fields contradict each other."""

import numpy as np
from onnx import TensorProto as T

import wire
from tiny import Row, file, mlp, one, tensor, weights

ROWS = []
HUGE = 1 << 62


def extra(dims, dtype=T.FLOAT, raw=None, name="t", **fields):
    """A model with one more initialiser, which has exactly these fields, and a node that reads
    it."""
    def change(m):
        made = m.graph.initializer.add(name=name, data_type=dtype)
        made.dims.extend(dims)
        if raw is not None:
            made.raw_data = raw
        m.graph.node.add(op_type="Identity", input=["t"], output=["t2"])
        m.graph.output.add(name="t2")
        for key, value in fields.items():
            if isinstance(value, (list, tuple)):
                getattr(made, key).extend(value)
            else:
                setattr(made, key, value)
    return mlp(change)


def row(name, word, bad, twin, **more):
    """Add a row; bad and twin are arguments of extra(), or models."""
    def build(x):
        return file(lambda: extra(**x) if isinstance(x, dict) else x)
    ROWS.append(Row(name, "tensors", word, build(bad), build(twin), **more))


GOOD = {"dims": [4], "raw": bytes(16)}

# ---- shape ---------------------------------------------------------------------------------------

EMPTY = {"dims": [0, 4], "raw": b""}
row("dim -1", "dim", {"dims": [-1], "raw": bytes(16)}, GOOD)
row("dim -2^63", "dim", {"dims": [-(1 << 63)], "raw": bytes(16)}, GOOD)
row("two negative dims", "dim", {"dims": [-2, -2], "raw": bytes(16)}, {"dims": [2, 2],
                                                                       "raw": bytes(16)})
row("dim 0 with data", "t", {"dims": [0], "raw": bytes(16)}, EMPTY)
row("dim 2^31", "t", {"dims": [1 << 31], "raw": bytes(16)}, GOOD)
row("dim 2^62", "t", {"dims": [HUGE], "raw": bytes(16)}, GOOD)
row("dim 2^63 - 1", "t", {"dims": [(1 << 63) - 1], "raw": bytes(16)}, GOOD)
row("product wraps to 0", "t", {"dims": [1 << 32, 1 << 32], "raw": b""}, EMPTY)
row("product wraps to 4", "t", {"dims": [HUGE + 1, 4], "raw": bytes(16)}, GOOD)
row("bytes wrap to 16", "t", {"dims": [HUGE + 4], "raw": bytes(16)}, GOOD)
row("huge dims beside 0", "t", {"dims": [HUGE, HUGE, 0], "raw": b""}, EMPTY, code=(0, 3))
row("2^40 + 1 elements", "t", {"dims": [(1 << 40) + 1], "raw": bytes(16)}, GOOD)
row("rank 9", "dims", {"dims": [1] * 9, "raw": bytes(4)}, {"dims": [1] * 8, "raw": bytes(4)})
row("rank 1 000", "", {"dims": [1] * 1000, "raw": bytes(4)}, {"dims": [], "raw": bytes(4)})

# ---- data ----------------------------------------------------------------------------------------

row("raw data one byte short", "t", {"dims": [4], "raw": bytes(15)}, GOOD)
row("raw data one byte long", "t", {"dims": [4], "raw": bytes(17)}, GOOD)
row("raw data one element short", "t", {"dims": [4], "raw": bytes(12)}, GOOD)
row("raw data of another type's size", "t", {"dims": [4], "raw": bytes(8)},
    {"dims": [4], "raw": bytes(8), "dtype": T.FLOAT16})
row("no data", "t", {"dims": [4]}, EMPTY)
row("no data for a scalar", "t", {"dims": []}, {"dims": [], "raw": bytes(4)})
row("both raw and typed", "t", {"dims": [4], "raw": bytes(16), "float_data": [0.0] * 4}, GOOD)
row("typed data one short", "t", {"dims": [4], "float_data": [1.0] * 3},
    {"dims": [4], "float_data": [1.0] * 4})
row("typed data one long", "t", {"dims": [4], "float_data": [1.0] * 5},
    {"dims": [4], "float_data": [1.0] * 4})
row("floats in int64_data", "t", {"dims": [4], "int64_data": [1] * 4},
    {"dims": [4], "dtype": T.INT64, "int64_data": [1] * 4})
row("int64 in int32_data", "t", {"dims": [4], "dtype": T.INT64, "int32_data": [1] * 4},
    {"dims": [4], "dtype": T.INT32, "int32_data": [1] * 4})
row("doubles in float_data", "t", {"dims": [4], "dtype": T.DOUBLE, "float_data": [1] * 4},
    {"dims": [4], "dtype": T.DOUBLE, "double_data": [1] * 4})
row("uint64 in int64_data", "t", {"dims": [4], "dtype": T.UINT64, "int64_data": [1] * 4},
    {"dims": [4], "dtype": T.UINT64, "uint64_data": [1] * 4})
row("two typed fields", "t", {"dims": [4], "float_data": [1] * 4, "int32_data": [1] * 4},
    {"dims": [4], "float_data": [1] * 4})
row("uint8 of 256 in int32_data", "t", {"dims": [2], "dtype": T.UINT8, "int32_data": [1, 256]},
    {"dims": [2], "dtype": T.UINT8, "int32_data": [1, 255]})
row("int8 of -129 in int32_data", "t", {"dims": [2], "dtype": T.INT8, "int32_data": [1, -129]},
    {"dims": [2], "dtype": T.INT8, "int32_data": [1, -128]})
row("float16 bits beyond 16", "t", {"dims": [1], "dtype": T.FLOAT16, "int32_data": [65536]},
    {"dims": [1], "dtype": T.FLOAT16, "int32_data": [15360]})
row("uint32 beyond 32 bits", "t", {"dims": [1], "dtype": T.UINT32, "uint64_data": [1 << 32]},
    {"dims": [1], "dtype": T.UINT32, "uint64_data": [(1 << 32) - 1]})
row("bool of 2 in int32_data", "t", {"dims": [1], "dtype": T.BOOL, "int32_data": [2]},
    {"dims": [1], "dtype": T.BOOL, "int32_data": [1]}, code=(0, 3))
row("odd int4 count without its last byte", "t", {"dims": [5], "dtype": T.INT4, "raw": bytes(2)},
    {"dims": [5], "dtype": T.INT4, "raw": bytes(3)})
row("int4 with one byte an element", "t", {"dims": [5], "dtype": T.UINT4, "raw": bytes(5)},
    {"dims": [5], "dtype": T.UINT4, "raw": bytes(3)})
row("int4 in int32_data one short", "t", {"dims": [5], "dtype": T.UINT4, "int32_data": [1] * 2},
    {"dims": [5], "dtype": T.UINT4, "int32_data": [1] * 3})

# ---- type and place ------------------------------------------------------------------------------



def located(place):
    """x + w, where w itself says where its data are."""
    made = wire.number(1, 4) + wire.number(2, 1) + wire.message(8, "w") \
        + wire.message(9, bytes(16)) + wire.number(14, place)
    return wire.model(wire.relu(ops=wire.node("Add", ["x", "w"], ["y"]))
                      + wire.message(5, made))


row("data type 0", "type", {"dims": [4], "dtype": 0, "raw": bytes(16)}, GOOD)
row("data type 999", "type", {"dims": [4], "dtype": 999, "raw": bytes(16)}, GOOD)
row("data type -1", "type", {"dims": [4], "dtype": -1, "raw": bytes(16)}, GOOD)
row("data type complex64", "type", {"dims": [2], "dtype": T.COMPLEX64, "raw": bytes(16)}, GOOD)
row("data location 7", "location", located(7), located(0))
row("external without entries", "t", {"dims": [4], "data_location": 1}, GOOD)
row("name missing", "name", {"dims": [4], "raw": bytes(16), "name": ""}, GOOD)
row("name of another initialiser", "w", {"dims": [4], "raw": bytes(16), "name": "w"}, GOOD)


def segmented():
    """A tensor declared to be a part of another one."""
    m = extra([4], raw=bytes(16))
    m.graph.initializer[-1].segment.begin = 0
    m.graph.initializer[-1].segment.end = 4
    return m


def sparse():
    """A model with a sparse initialiser."""
    m = mlp()
    m.graph.initializer.remove(next(i for i in m.graph.initializer if i.name == "b"))
    made = m.graph.sparse_initializer.add(dims=[4])
    made.values.CopyFrom(tensor("b", weights(1)))
    made.indices.CopyFrom(tensor("", np.array([2], np.int64)))
    return m


def strings(dtype):
    """Gather of text or of numbers."""
    m = one("Gather", ["t", "x"], constants={"t": weights((4, 2))},
            shapes={"x": (T.INT64, ["B"])})
    if dtype == T.STRING:
        t = m.graph.initializer[0]
        t.Clear()
        t.name, t.data_type = "t", T.STRING
        t.dims.extend([2])
        t.string_data.extend([b"one", b"two"])
    return m


row("segment", "segment", segmented(), extra([4], raw=bytes(16)))
row("sparse initialiser", "b", sparse(), mlp())
row("strings as weights", "string", strings(T.STRING), strings(T.FLOAT))


def constant(**fields):
    """A Constant node with a tensor of these fields."""
    m = one("Add", ["x", "t"], constants={"t": weights(4)})
    node = m.graph.node.add(op_type="Constant", output=["t"], name="constant")
    held = m.graph.initializer.pop()
    attribute = node.attribute.add(name="value", type=4)
    attribute.t.CopyFrom(held)
    attribute.t.name = ""
    for key, value in fields.items():
        if key == "dims":
            attribute.t.dims[:] = value
        else:
            setattr(attribute.t, key, value)
    m.graph.node.insert(0, node)
    del m.graph.node[-1]
    return m


row("constant with lying dims", "constant", constant(dims=[400]), constant())
row("constant of a gigabyte that is not there", "constant", constant(dims=[1 << 28]), constant())
row("constant of an unknown type", "constant", constant(data_type=99), constant())
