"""Bad files, class wire: bytes that are not an encoded model."""

import os

import wire
from tiny import Row, file, mlp, save
from wire import long_varint, message, model, number, relu, tag, value_info, varint

ROWS = []


def row(name, word, bad, twin=None, **more):
    """Add a row; bad and twin are bytes, models or builders."""
    build = [x if callable(x) else file(lambda x=x: x)
             for x in (bad, mlp() if twin is None else twin)]
    ROWS.append(Row(name, "wire", word, *build, **more))


GOOD = model(relu())
HEAD = number(1, 10) + message(8, message(1, ""), number(2, 17))
BYTES = mlp().SerializeToString()


# ---- framing -------------------------------------------------------------------------------------

row("empty file", "empty", b"")
row("one byte", "truncated", b"\x08")
row("a zero byte", "field number", b"\0")
row("text", "", b"This is not a model.\n" * 9)
row("zip archive", "", b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(200))
row("ELF file", "", b"\x7fELF\x02\x01\x01" + bytes(200))
row("gguf file", "", b"GGUF\x03\0\0\0" + bytes(200))
for cut in (1, 7, len(BYTES) // 2, len(BYTES) - 1):
    row(f"cut to {cut} of {len(BYTES)} bytes", "", BYTES[:cut])
row("truncated varint at the end", "truncated", GOOD + b"\x80", GOOD)
row("varint of 11 bytes", "64 bits", model(relu(), ir=tag(1, 0) + long_varint(10, 11)),
    model(relu(), ir=tag(1, 0) + long_varint(10, 10)))
row("varint beyond 64 bits", "64 bits", model(relu(), ir=tag(1, 0) + b"\xff" * 9 + b"\x7f"), GOOD)
row("length one past the end", "length", GOOD + tag(50, 2) + b"\x05abcd",
    GOOD + tag(50, 2) + b"\x04abcd")
for power in (31, 32, 62, 63):
    row(f"length 2^{power}", "length", GOOD + tag(50, 2) + varint(1 << power) + b"abcd", GOOD)
row("inner length past its parent", "length",
    model(relu(ops=message(1, tag(4, 2) + b"\x09Relu"))), GOOD)
row("field number 0", "field number", GOOD + tag(0, 0) + b"\x01", GOOD + tag(50, 0) + b"\x01")
row("group start", "wire type", GOOD + tag(50, 3) + tag(50, 4), GOOD + message(50, "x"))
row("group end", "wire type", GOOD + tag(50, 4), GOOD)
row("wire type 6", "wire type", GOOD + tag(50, 6) + b"\x01", GOOD)
row("wire type 7", "wire type", GOOD + tag(50, 7) + b"\x01", GOOD)
row("four-byte field cut", "truncated", GOOD + tag(50, 5) + b"abc", GOOD + tag(50, 5) + b"abcd")
row("eight-byte field cut", "truncated", GOOD + tag(50, 1) + b"abcdefg",
    GOOD + tag(50, 1) + b"abcdefgh")

# ---- the wrong wire type for a field -------------------------------------------------------------


def norm(value):
    """Graph body with a norm whose attribute epsilon ends in these bytes."""
    attribute = message(5, message(1, "epsilon"), number(20, 1), value)
    scale = message(5, number(1, 4), number(2, 1), message(8, "w"), message(9, bytes(16)))
    return relu(ops=wire.node("SimplifiedLayerNormalization", ["x", "w"], ["y"], attribute)) + scale


def weight(dims, data=message(9, bytes(16)), dtype=number(2, 1)):
    """Graph body with an Add of an initialiser [4]."""
    made = message(5, dims, dtype, message(8, "w"), data)
    return relu(ops=wire.node("Add", ["x", "w"], ["y"])) + made


FLOAT = tag(2, 5) + b"\0\0\0\x3f"
row("number sent as bytes", "wire type", model(relu(), ir=message(1, "10")), GOOD)
row("message sent as number", "wire type", HEAD + number(7, 1), GOOD)
row("string sent as number", "wire type", number(2, 7) + GOOD, message(2, "me") + GOOD)
row("node sent as four bytes", "wire type", model(relu() + tag(1, 5) + b"abcd"), GOOD)
row("float sent as varint", "wire type", model(norm(number(2, 1))), model(norm(FLOAT)))
row("float sent as eight bytes", "wire type", model(norm(tag(2, 1) + bytes(8))),
    model(norm(FLOAT)))
row("int64 sent as eight bytes", "wire type", model(weight(tag(1, 1) + bytes(8))),
    model(weight(number(1, 4))))
row("dims sent as four bytes", "wire type", model(weight(tag(1, 5) + bytes(4))),
    model(weight(message(1, varint(4)))))
row("packed dims cut", "truncated", model(weight(message(1, b"\x84"))),
    model(weight(message(1, b"\x04"))))
row("packed floats not a multiple of 4", "", model(weight(number(1, 4), message(4, bytes(15)))),
    model(weight(number(1, 4), message(4, bytes(16)))))

# ---- repetition, depth and number ----------------------------------------------------------------

row("graph twice", "graph", GOOD + message(7, relu()), GOOD)
row("graph 100 000 times", "graph", GOOD + message(7) * 100_000, GOOD)
row("type of an input twice", "",
    model(relu() + message(11, message(1, "t"), message(2, message(1, number(1, 1))) * 2)), GOOD)
row("no graph", "graph", HEAD, GOOD)
row("a million empty nodes", "", model(relu() + message(1) * 1_000_001),
    model(relu() + b"".join(wire.node("Relu", ["x"], [f"t{i}"]) for i in range(1000))))
row("a million empty initialisers", "", model(relu() + message(5) * 1_000_001), GOOD)
row("a million empty functions", "", model(relu()) + message(25) * 1_000_001, GOOD)
row("a million empty opset imports", "", model(relu()) + message(8) * 1_000_001, GOOD)
row("a million dims", "", model(weight(message(1, b"\x01" * 1_000_000))),
    model(weight(message(1, b"\x04"))))


def sequence_type(depth):
    """A graph input whose TypeProto nests sequences so that the message depth is `depth`."""
    made = message(1, number(1, 1))  # tensor_type, one level below its type
    for _ in range((depth - 5) // 2):
        made = message(4, message(1, made))
    return model(relu() + message(11, message(1, "t"), message(2, made)))


def branch(name, inner, output):
    """A graph attribute: body and its output."""
    graph = inner + message(2, name) + message(12, message(1, output))
    return message(5, message(1, name), number(20, 5), message(6, graph))


def nested_if(levels):
    """Nested Ifs, with `levels` sub-graphs inside each other."""
    body, last = wire.node("Identity", ["x"], ["t0"]), "t0"
    for i in range(1, levels + 1):
        other = wire.node("Identity", ["x"], [f"e{i}"])
        body = wire.node("If", ["c"], [f"t{i}"], branch("then_branch", body, last),
                         branch("else_branch", other, f"e{i}"))
        last = f"t{i}"
    condition = message(11, message(1, "c"), message(2, message(1, number(1, 9), message(2))))
    return model(relu(name=last, ops=body) + condition)


row("message depth 101", "depth", sequence_type(101), GOOD)
row("message depth 9 000", "depth", sequence_type(9_001), GOOD)
row("sub-graphs 17 deep", "depth", nested_if(17), nested_if(16))
row("sub-graphs 2 000 deep", "depth", nested_if(2_000), nested_if(2))
row("a million unknown fields", "", GOOD + number(50, 1) * 1_000_000, GOOD + number(50, 1) * 9,
    code=(0, 3))

# ---- strings -------------------------------------------------------------------------------------

MARK = b"QzMarkQz"


def marked(role):
    """A valid model with MARK as the string of that role."""
    text = MARK.decode()

    def change(m):
        g = m.graph
        edits = {
            "producer name": lambda: setattr(m, "producer_name", text),
            "graph name": lambda: setattr(g, "name", text),
            "node name": lambda: setattr(g.node[0], "name", text),
            "node input": lambda: rename(m, "x"),
            "node output": lambda: rename(m, "a"),
            "graph output": lambda: rename(m, "y"),
            "initialiser name": lambda: rename(m, "w"),
            "dim name": lambda: setattr(g.input[0].type.tensor_type.shape.dim[0], "dim_param",
                                        text),
            "opset domain": lambda: setattr(m.opset_import.add(version=1), "domain", text),
            "metadata key": lambda: m.metadata_props.add(key=text, value="v"),
            "value info": lambda: setattr(g.value_info.add(), "name", text),
        }
        edits[role]()

    def rename(m, old):
        g = m.graph
        for n in g.node:
            n.input[:] = [text if i == old else i for i in n.input]
            n.output[:] = [text if o == old else o for o in n.output]
        for v in (*g.input, *g.output, *g.initializer):
            v.name = text if v.name == old else v.name

    data = mlp(change).SerializeToString()
    assert MARK in data, role
    return data


# An importer that skips a field may ignore its content.
SKIPPED = ("metadata key", "value info")
ROLES = ("producer name", "graph name", "node name", "node input", "node output", "graph output",
         "initialiser name", "dim name", "opset domain", "metadata key", "value info")
for role in ROLES:
    code = (0, 3) if role in SKIPPED else 3
    row(f"NUL in the {role}", "NUL", marked(role).replace(MARK, MARK[:3] + b"\0" + MARK[4:]),
        marked(role), code=code)
    row(f"bad UTF-8 in the {role}", "UTF-8",
        marked(role).replace(MARK, MARK[:3] + b"\xff" + MARK[4:]),
        marked(role).replace(MARK, "Qz\u00e4\u00f6zz".encode()), code=code)
for label, code in (("overlong", b"\xc0\xaf"), ("surrogate", b"\xed\xa0\x80"),
                    ("beyond U+10FFFF", b"\xf4\x90\x80\x80"), ("cut", b"\xe6\x95")):
    row(f"UTF-8 {label}", "UTF-8",
        marked("node name").replace(MARK, MARK[:-len(code)] + code), marked("node name"))
row("op type with NUL", "NUL", BYTES.replace(b"Relu", b"Re\0u"))


def long_name(length):
    """A node output with a name of that many bytes."""
    return model(relu(name="n" * length))


row("name of 1 025 bytes", "1024", long_name(1025), long_name(1024))

# ---- what the path refers to ---------------------------------------------------------------------


def directory(folder):
    """A folder called model.onnx."""
    (folder / "model.onnx").mkdir()


def fifo(folder):
    """A named pipe to which nothing writes."""
    os.mkfifo(folder / "model.onnx")


def nothing(folder):
    """No file."""


def dangling(folder):
    """A link to nowhere."""
    (folder / "model.onnx").symlink_to("nowhere")


def device(folder):
    """A link to a device without an end."""
    (folder / "model.onnx").symlink_to("/dev/zero")


def linked(folder):
    """A link to a model: the user named it, so it is followed."""
    save(mlp(), folder)
    (folder / "model.onnx").rename(folder / "other.onnx")
    (folder / "model.onnx").symlink_to("other.onnx")


for label, make in (("a directory", directory), ("a FIFO", fifo), ("missing", nothing),
                    ("a dangling link", dangling), ("a device", device)):
    row(f"the model is {label}", "", make, linked, code=5)
