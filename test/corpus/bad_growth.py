"""Bad files, class graph: small files that cause much work. They are refused; or they are valid,
code 0, and then neither time nor memory may grow faster than the file."""

import numpy as np
from onnx import TensorProto as T, helper

from bad_graph import function
from tiny import Row, file, info, model, tensor
from wire import message

ROWS = []


def row(name, word, make, bad, twin, **more):
    """A row with make(*bad) and make(*twin)."""
    ROWS.append(Row(name, "graph", word, file(make, *bad), file(make, *twin), **more))


def repeated(made, node, times):
    """The bytes of a model with a node repeated that many times after the others."""
    graph = made.graph.SerializeToString() + message(1, node.SerializeToString()) * times
    made.ClearField("graph")
    return made.SerializeToString() + message(7, graph)


def calling(made, times, overload=""):
    """y = Relu(x), and calls of F0 whose results are unused."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    called = helper.make_node("F0", ["x"], [], domain="local", overload=overload)
    return repeated(model([relu], [info("x", T.FLOAT, ["B", 4])], [info("y")],
                          functions=made, domains=["local"]), called, times)


# ---- calls of functions --------------------------------------------------------------------------


def initialisers(count, times):
    """A function with an If, one branch of which has many initialisers."""
    made = [tensor(f"w{i}", np.float32(i)) for i in range(count)]
    then = helper.make_graph([helper.make_node("Add", ["a", "w0"], ["t"])], "then", [], [info("t")],
                             made)
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["e"])], "other", [], [info("e")])
    truth = helper.make_node("Constant", [], ["c"], value=tensor("", np.array(True)))
    branches = helper.make_node("If", ["c"], ["r"], then_branch=then, else_branch=other)
    return calling([function("F0", truth, branches)], times)


def parameters(count, times):
    """A function with many parameters."""
    inputs = [f"p{i}" for i in range(count)]
    return calling([function("F0", helper.make_node("Relu", ["p0"], ["r"]), inputs=inputs)], times)


def results(count, times):
    """A graph with an unknown op that returns one value many times."""
    body = helper.make_graph([helper.make_node("Relu", ["a"], ["t"])], "g", [], [info("t")] * count)
    return calling([function("F0", helper.make_node("Frobnicate", ["a"], ["r"], body=body))], times)


row("branch of 5 000 initialisers, called 8 000 times", "names", initialisers, (5000, 8000),
    (5000, 3))
row("function of 4 000 parameters, called 10 000 times", "names", parameters, (4000, 10_000),
    (4000, 3))
row("graph of 20 000 results, called 10 000 times", "names", results, (20_000, 10_000), (20_000, 3),
    twin_code=3)


def overloads(count, times):
    """Functions with the same name; the last one is called."""
    made = []
    for i in range(count):
        made.append(function("F0", outputs=()))
        made[-1].overload = str(i)
    return calling(made, times, overload=str(count - 1))


row("10 000 overloads, the last called 100 000 times", "", overloads, (10_000, 100_000), (10, 10),
    code=0)


def constants(attribute, times):
    """A function that reads an element of a large constant."""
    made = [helper.make_node("Constant", [], ["k"], **attribute),
            helper.make_node("Constant", [], ["i"], value_int=1),
            helper.make_node("Gather", ["k", "i"], ["r"])]
    return calling([function("F0", *made)], times)


def numbers(count):
    """A tensor whose values are varints."""
    return {"value": helper.make_tensor("", T.INT32, [count], [1] * count)}


row("tensor of 3 000 000 varints, called 1 000 times", "", lambda n: constants(numbers(n), 1000),
    (3_000_000,), (3,), code=0)
row("list of 1 000 000 numbers, called 1 000 times", "attributes",
    lambda times: constants({"value_ints": [1] * 1_000_000}, times), (1000,), (3,))


def attributes(times, **given):
    """A function with a node that has an attribute unknown to its op."""
    return calling([function("F0", helper.make_node("Relu", ["a"], ["r"], **given))], times)


for label, value in (("list of 1 000 000 numbers", [1] * 1_000_000),
                     ("text of 8 000 000 bytes", "x" * 8_000_000),
                     ("list of long texts", ["x" * 80_000] * 100)):
    row(f"attribute, a {label}, called 1 000 times", "attributes",
        lambda times, value=value: attributes(times, extra=value), (1000,), (3,), twin_code=3)

# ---- equal nodes ---------------------------------------------------------------------------------


def fills(count):
    """ConstantOfShape with one shape, each with a different value."""
    made = [helper.make_node("Shape", ["x"], ["s"])]
    for i in range(count):
        value = helper.make_tensor("", T.FLOAT, [1], [float(i)])
        made.append(helper.make_node("ConstantOfShape", ["s"], [f"f{i}"], value=value))
    outputs = [info(f"f{i}") for i in range(count)]
    return model(made, [info("x", T.FLOAT, ["B", 4])], outputs)


row("20 000 ConstantOfShape with different values", "", fills, (20_000,), (20,), code=0)
