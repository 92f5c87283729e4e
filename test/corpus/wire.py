"""Protobuf's wire format by hand: just enough to write messages that a library would refuse to
write."""


def varint(value):
    """Base-128 number; negative ones as 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def long_varint(value, size):
    """The number in `size` bytes, padded with empty groups of bits."""
    low = [value >> 7 * i & 127 for i in range(size)]
    return bytes([b | 128 for b in low[:-1]] + low[-1:])


def tag(field, wire_type):
    """The tag of a field: 0 varint, 1 eight bytes, 2 length, 3 and 4 group, 5 four bytes."""
    return varint(field << 3 | wire_type)


def number(field, value):
    """A varint field."""
    return tag(field, 0) + varint(value)


def message(field, *parts):
    """A length-delimited field; parts are bytes or text."""
    body = b"".join(p.encode() if isinstance(p, str) else p for p in parts)
    return tag(field, 2) + varint(len(body)) + body


def value_info(field, name, width):
    """ValueInfoProto of fp32 [batch, width]."""
    shape = message(2, message(1, message(2, "batch")), message(1, number(1, width)))
    return message(field, message(1, name), message(2, message(1, number(1, 1), shape)))


def node(op, inputs, outputs, *rest):
    """A NodeProto in a graph."""
    return message(1, *(message(1, x) for x in inputs), *(message(2, y) for y in outputs),
                   message(4, op), *rest)


def model(graph, ir=number(1, 10), opset=number(2, 17), rest=b""):
    """A ModelProto around the body of its graph."""
    return ir + message(8, message(1, ""), opset) + rest + message(7, graph)


def relu(name="y", ops=b"", graph_name="g"):
    """Body of a graph x → Relu → y."""
    return (ops or node("Relu", ["x"], [name])) + message(2, graph_name) \
        + value_info(11, "x", 4) + value_info(12, name, 4)
