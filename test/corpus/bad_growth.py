"""Bad files, class graph: small files that ask for much work. They are refused; or they are legal, code
0, and then neither time nor memory may grow faster than the file."""

from onnx import TensorProto as T, helper

from tiny import Row, file, info, model

ROWS = []


def row(name, word, make, bad, twin, **more):
    """A row of make(*bad) and make(*twin)."""
    ROWS.append(Row(name, "graph", word, file(make, *bad), file(make, *twin), **more))


# ---- equal nodes ---------------------------------------------------------------------------------


def fills(count):
    """ConstantOfShape of one shape, each with a value of its own."""
    made = [helper.make_node("Shape", ["x"], ["s"])]
    for i in range(count):
        value = helper.make_tensor("", T.FLOAT, [1], [float(i)])
        made.append(helper.make_node("ConstantOfShape", ["s"], [f"f{i}"], value=value))
    outputs = [info(f"f{i}") for i in range(count)]
    return model(made, [info("x", T.FLOAT, ["B", 4])], outputs)


row("20 000 ConstantOfShape with different values", "", fills, (20_000,), (20,), code=0)
