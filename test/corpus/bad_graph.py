"""Bad files, class graph: nodes, names, sub-graphs, functions, attributes and shapes."""

import numpy as np
from onnx import TensorProto as T, helper

from tiny import F32, I64, Row, file, info, mlp, model, one, save, tensor, weights

ROWS = []
NAN, INF = float("nan"), float("inf")


def row(name, word, bad, twin=None, **more):
    """Add a row; bad and twin are models or functions without arguments."""
    def build(x):
        return file(x if callable(x) else lambda: x)
    ROWS.append(Row(name, "graph", word, build(bad), build(twin or mlp), **more))


def late(name, word, bad, twin):
    """A row whose bad model fails when it is run, on x = ones."""
    def build(m):
        def both(folder):
            save(m, folder)
            (folder / "in").mkdir()
            for i in m.graph.input:
                given = i.type.tensor_type
                dims = [d.dim_value or 1 for d in given.shape.dim]
                np.save(folder / "in" / f"{i.name}.npy",
                        np.ones(dims, helper.tensor_dtype_to_np_dtype(given.elem_type)))
        return both
    ROWS.append(Row(name, "graph", word, build(bad), build(twin), verb="run"))


def nodes(*made, inputs=("x",), outputs=("y",), **more):
    """A model of these nodes; inputs and outputs are names of fp32 [B,4] values."""
    return model(made, [info(n, T.FLOAT, ["B", 4]) for n in inputs],
                 [info(n, T.FLOAT) for n in outputs], **more)


def node(op, inputs, outputs, **attrs):
    """A node from "a b" and "c"."""
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), name=op.lower(), **attrs)


def edit(change):
    """mlp with an edit; built only when it is needed."""
    return lambda: mlp(change)


# ---- names and order -----------------------------------------------------------------------------

PAIR = nodes(node("Relu", "x", "a"), node("Abs", "a", "y"))
row("cycle of two nodes", "", nodes(node("Add", "x b", "a"), node("Relu", "a", "b"),
                                    node("Abs", "b", "y")), PAIR)
row("node that feeds itself", "", nodes(node("Add", "x y", "y")), PAIR)
row("undefined input", "ghost", nodes(node("Add", "x ghost", "y")), PAIR)
row("output of two nodes", "a", nodes(node("Relu", "x", "a"), node("Abs", "x", "a"),
                                      node("Neg", "a", "y")), PAIR)
row("one node gives an output twice", "y", nodes(node("Split", "x", "y y", axis=1)),
    nodes(node("Split", "x", "y z", axis=1)))
row("output named like an input", "x", nodes(node("Relu", "x", "x"), outputs=("x",)), PAIR)
row("output named like an initialiser", "w", edit(lambda m: m.graph.node[0].output.__setitem__(
    0, "w")))
row("graph output that nothing makes", "ghost", nodes(node("Relu", "x", "a"), outputs=("ghost",)),
    PAIR)
row("graph input twice", "x", nodes(node("Relu", "x", "y"), inputs=("x", "x")), PAIR)
row("no graph outputs", "output", nodes(node("Relu", "x", "y"), outputs=()), PAIR, code=(0, 3))
row("graph output without a name", "", nodes(node("Relu", "x", "y"), outputs=("",)), PAIR)
row("graph input without a name", "", nodes(node("Relu", "x", "y"), inputs=("x", "")), PAIR)
row("graph input without a type", "x", edit(lambda m: m.graph.input[0].ClearField("type")))
row("graph input with an unknown type", "type",
    edit(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77)))
row("graph input with dim -5", "",
    edit(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", -5)))


def ranked(rank):
    """Relu of a value with that rank."""
    return one("Relu", ["x"], shapes={"x": [1] * rank})


row("graph input of rank 9", "dim", ranked(9), ranked(8))
row("unknown op", "Frobnicate", nodes(node("Frobnicate", "x", "y")), PAIR)
row("op without a type", "", nodes(node("", "x", "y")), PAIR)
row("unknown domain", "org.example",
    model([helper.make_node("Relu", ["x"], ["y"], domain="org.example")],
          [info("x")], [info("y")], domains=["org.example"]), PAIR)
row("domain that is not imported", "org.example",
    model([helper.make_node("Relu", ["x"], ["y"], domain="org.example")],
          [info("x")], [info("y")]), PAIR)

# ---- opsets --------------------------------------------------------------------------------------


def opset(version):
    """mlp with that version of the default domain; None: without an import."""
    def change(m):
        if version is None:
            del m.opset_import[:]
        else:
            m.opset_import[0].version = version
    return edit(change)


for version in (0, -1, 1 << 31, -(1 << 63), 1000):
    row(f"opset {version}", "opset", opset(version), opset(22))
row("no opset import", "opset", opset(None))
row("default domain imported twice", "twice",
    edit(lambda m: m.opset_import.append(helper.make_opsetid("", 13))),
    edit(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))))
row("IR version 0", "version", edit(lambda m: setattr(m, "ir_version", 0)))


def newer_without_opset(m):
    """Unsupported, and also invalid."""
    m.ir_version = 1000
    del m.opset_import[:]


row("IR version 1 000, and no opset import", "opset", edit(newer_without_opset))
row("IR version 1 000", "version", edit(lambda m: setattr(m, "ir_version", 1000)), code=(0, 3))

# ---- attributes ----------------------------------------------------------------------------------


def cast(**attrs):
    """Cast with these attributes."""
    return one("Cast", ["x"], shapes={"y": T.FLOAT16 if attrs.get("to") == 10 else T.FLOAT},
               **attrs)


def with_attribute(change, op="LeakyRelu", **attrs):
    """A one-node model whose attribute is edited by change(attribute, node)."""
    m = one(op, ["x"], **(attrs or {"alpha": 0.5}))
    change(m.graph.node[0].attribute[0], m.graph.node[0])
    return m


SOFT = one("Softmax", ["x"], axis=-1)
row("required attribute missing", "to", cast(), cast(to=1))
row("attribute of the wrong type", "to", cast(to="float"), cast(to=1))
row("attribute int as float", "axis", one("Softmax", ["x"], axis=1.0), SOFT)
row("attribute int as list", "axis", one("Softmax", ["x"], axis=[1]), SOFT)
row("unknown attribute", "flavour", one("Softmax", ["x"], axis=-1, flavour=3), SOFT)
row("attribute twice", "axis",
    with_attribute(lambda a, n: n.attribute.append(a), "Softmax", axis=-1), SOFT)
row("attribute without a name", "",
    with_attribute(lambda a, n: setattr(a, "name", ""), "Softmax", axis=-1), SOFT)
row("attribute type unknown", "",
    with_attribute(lambda a, n: setattr(a, "type", 0), "Softmax", axis=-1), SOFT, code=(0, 3))
row("attribute refers outside of a function", "",
    with_attribute(lambda a, n: setattr(a, "ref_attr_name", "k"), "Softmax", axis=-1), SOFT)
row("cast to type 0", "to", cast(to=0), cast(to=10))
row("cast to type 99", "to", cast(to=99), cast(to=10))
row("cast to text", "", cast(to=8), cast(to=10))


def norm(epsilon):
    """SimplifiedLayerNormalization with that epsilon."""
    return one("SimplifiedLayerNormalization", ["x", "g"], constants={"g": weights(4)}, axis=-1,
               epsilon=epsilon)


for value in (NAN, INF, -INF):
    row(f"epsilon {value}", "epsilon", norm(value), norm(1e-5))


def skip_norm(skip=(F32, ["B", 4]), gamma=None, op="SkipSimplifiedLayerNormalization"):
    """A norm of a sum, with another skip or other scales."""
    return one(op, ["x", "skip", "g"], constants={"g": weights(4) if gamma is None else gamma},
               shapes={"x": (F32, ["B", 4]), "skip": skip}, domain="com.microsoft", epsilon=1e-5)


for op in ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"):
    row(f"{op} of a wider skip", "skip", skip_norm((F32, ["B", 5]), op=op), skip_norm(op=op))
    row(f"{op} of an integer skip", "skip", skip_norm((I64, ["B", 4]), op=op), skip_norm(op=op))
    row(f"{op} with integer scales", "gamma", skip_norm(gamma=np.ones(4, np.int64), op=op), skip_norm(op=op))
    row(f"{op} of a skip of another float", "skip", skip_norm((T.FLOAT16, ["B", 4]), op=op),
        skip_norm(op=op))
    row(f"{op} with one scale more", "scales", skip_norm(gamma=weights(5), op=op), skip_norm(op=op))
row("257 attributes", "", one("Relu", ["x"], **{f"a{i}": i for i in range(257)}), PAIR)
row("4 097 inputs", "input", one("Max", ["x"] * 4097), one("Max", ["x"] * 40))
row("too many inputs", "Relu", one("Relu", ["x", "z"]), PAIR)
row("too few inputs", "MatMul", one("MatMul", ["x"]), one("MatMul", ["x", "w"], constants={
    "w": weights((4, 2))}))
row("required input left out", "MatMul", one("MatMul", ["x", ""]),
    one("MatMul", ["x", "w"], constants={"w": weights((4, 2))}))
row("too many outputs", "Relu", one("Relu", ["x"], ["y", "z"]), PAIR)
row("node without outputs", "", nodes(node("Relu", "x", "y"), helper.make_node("Abs", ["x"], [])),
    PAIR)

# ---- shapes and types ----------------------------------------------------------------------------


def op(name, *constants, **attrs):
    """x [B,4] with constants."""
    held = {f"c{i or ''}": np.asarray(c) for i, c in enumerate(constants)}
    return one(name, ["x", *held], constants=held, **attrs)


def ints(*values):
    """An int64 constant."""
    return np.array(values, np.int64)


row("inner dims differ", "MatMul", op("MatMul", weights((5, 2))), op("MatMul", weights((4, 2))))
row("shapes do not broadcast", "Add", op("Add", weights(3)), op("Add", weights(4)))
row("element types differ", "Add", op("Add", ints(1, 2, 3, 4)), op("Add", weights(4)))
row("element type not taken", "", one("Exp", ["x"], shapes={"x": (I64, [4])}),
    one("Exp", ["x"], shapes={"x": (T.FLOAT, [4])}))
row("Transpose with a wrong perm", "perm", one("Transpose", ["x"], perm=[0, 2]),
    one("Transpose", ["x"], perm=[1, 0]))
row("Transpose with perm twice the same", "perm", one("Transpose", ["x"], perm=[0, 0]),
    one("Transpose", ["x"], perm=[1, 0]))
row("Concat axis beyond the rank", "axis", one("Concat", ["x", "x"], axis=2),
    one("Concat", ["x", "x"], axis=-2))
row("Concat axis 2^40", "axis", one("Concat", ["x", "x"], axis=1 << 40),
    one("Concat", ["x", "x"], axis=1))
row("Softmax axis beyond the rank", "axis", one("Softmax", ["x"], axis=-3), SOFT)
row("Gather axis beyond the rank", "axis", op("Gather", ints(0), axis=5),
    op("Gather", ints(0), axis=1))


def fixed(name, constant, **attrs):
    """c1 [2,4] and one more constant, so that everything can be folded."""
    return one(name, ["d", "c"], constants={"d": weights((2, 4)), "c": np.asarray(constant)},
               **attrs)


late("Gather of constants out of range", "", fixed("Gather", ints(2)), fixed("Gather", ints(-2)))
late("Gather of constants at 2^62", "", fixed("Gather", ints(1 << 62)), fixed("Gather", ints(1)))
late("Reshape to another count", "Reshape", fixed("Reshape", ints(3, 3)),
    fixed("Reshape", ints(4, 2)))
late("Reshape with two -1", "Reshape", fixed("Reshape", ints(-1, -1)),
    fixed("Reshape", ints(-1, 2)))
late("Reshape to -2", "Reshape", fixed("Reshape", ints(-2, 4)), fixed("Reshape", ints(2, 4)))
late("Reshape that overflows", "Reshape", fixed("Reshape", ints(1 << 62, 1 << 62)),
    fixed("Reshape", ints(8, 1)))
late("Reshape to rank 9", "", fixed("Reshape", np.ones(9, np.int64)),
    fixed("Reshape", ints(2, 1, 4)))

for name in ("Softmax", "LogSoftmax", "Hardmax"):
    for ins, outs in (([""], ["y"]), ([], ["y"]), (["x"], [""]), (["x"], [])):
        row(f"{name} of opset 11, {ins} to {outs}", "where the op" if not ins + outs else "",
            one(name, ins, outs, opset=11, axis=1, shapes={"x": [2, 3, 4]}),
            one(name, ["x"], opset=11, axis=1, shapes={"x": [2, 3, 4]}))
row("Squeeze of a dim that is not 1", "Squeeze", op("Squeeze", ints(1)),
    one("Squeeze", ["x", "c"], constants={"c": ints(1)}, shapes={"x": ["B", 1, 4]}))
row("Unsqueeze twice at one place", "Unsqueeze", op("Unsqueeze", ints(0, 0)),
    op("Unsqueeze", ints(0, 1)))
row("Unsqueeze beyond the rank", "Unsqueeze", op("Unsqueeze", ints(7)), op("Unsqueeze", ints(2)))
row("Unsqueeze to rank 9", "", op("Unsqueeze", ints(*range(7))), op("Unsqueeze", ints(*range(6))))


def sliced(*bounds):
    """Slice of a constant: starts, ends, axes, steps."""
    names = ["d", "starts", "ends", "axes", "steps"]
    held = {n: ints(v) for n, v in zip(names[1:], bounds, strict=True)}
    return one("Slice", names, constants={"d": weights((2, 4)), **held})


BIG = (1 << 63) - 1
late("Slice with step 0", "step", sliced(0, 2, 1, 0), sliced(0, 2, 1, 1))
row("Slice axis beyond the rank", "ax", sliced(0, 2, 2, 1), sliced(0, BIG, 1, BIG))
row("Slice axis -2^63", "ax", sliced(0, 2, -BIG - 1, 1), sliced(BIG, -BIG - 1, 1, -BIG - 1))
late("Split sizes do not add up", "Split", one("Split", ["x", "c"], ["y", "z"], {"c": ints(1, 2)},
                                              axis=1),
    one("Split", ["x", "c"], ["y", "z"], {"c": ints(1, 3)}, axis=1))
late("Split sizes that wrap", "Split",
    one("Split", ["x", "c"], ["y", "z"], {"c": ints(BIG, -BIG + 4)}, axis=1),
    one("Split", ["x", "c"], ["y", "z"], {"c": ints(0, 4)}, axis=1))


def filled(*dims):
    """ConstantOfShape of constant dims."""
    return one("ConstantOfShape", ["c"], constants={"c": ints(*dims)})


late("ConstantOfShape with -1", "", filled(-1, 2), filled(3, 2))
late("ConstantOfShape of 2^45 elements", "", filled(1 << 45), filled(1 << 4))
late("ConstantOfShape that overflows", "", filled(1 << 32, 1 << 32), filled(4, 4))
late("Expand to 2^60 elements", "", fixed("Expand", ints(1 << 57, 2, 4)),
    fixed("Expand", ints(3, 2, 4)))


def ranged(start, limit, delta):
    """Range of constants."""
    return one("Range", ["a", "b", "c"], constants={
        n: np.array(v, np.int64) for n, v in zip("abc", (start, limit, delta), strict=True)},
        shapes={"y": T.INT64})


late("Range with delta 0", "Range", ranged(0, 4, 0), ranged(0, 4, 1))
late("Range of 2^62", "", ranged(0, 1 << 62, 1), ranged(0, 62, 1))
late("Range that wraps", "", ranged(-BIG, BIG, 1), ranged(-3, 3, 1))

# ---- sub-graphs ----------------------------------------------------------------------------------


def branch(output, *made, name="b"):
    """A sub-graph with one output."""
    return helper.make_graph(list(made), name, [], [info(output)])


def choice(then=None, other=None, outputs="y", condition=(), **more):
    """y = If(c, Relu(x), Abs(x)), or other branches; c has the shape `condition`."""
    attrs = {"then_branch": then or branch("t", node("Relu", "x", "t")),
             "else_branch": other or branch("e", node("Abs", "x", "e"))}
    attrs = {k: v for k, v in attrs.items() if v != "none"}
    return model([node("If", "c", outputs, **attrs, **more)],
                 [info("x", T.FLOAT, ["B", 4]), info("c", T.BOOL, list(condition))],
                 [info(n) for n in outputs.split(" ")])


# Index 2 of two dims. The branch that does not run may be invalid.
BEYOND = (node("Shape", "x", "s"), node("Shape", "s", "i"), node("Gather", "s i", "g"),
          node("Cast", "g", "f", to=1), node("Add", "x f", "e"))
late("Gather of a shape out of range", "Gather",
     model(list(BEYOND), [info("x", T.FLOAT, ["B", 4])], [info("e")]),
     choice(other=branch("e", *BEYOND)))
row("If without else_branch", "else_branch", lambda: choice(other="none"), choice)
row("If with more outputs than its branches", "If", lambda: choice(outputs="y z"), choice)
row("If whose branches differ in type", "If",
    lambda: choice(other=branch("e", node("Cast", "x", "e", to=10))),
    lambda: choice(other=branch("e", node("Cast", "x", "e", to=1))))
row("If whose branches differ in rank", "If",
    lambda: choice(other=branch("e", node("Flatten", "x", "f", axis=0), node("Shape", "f", "e"))),
    choice)
row("sub-graph that reads what nobody makes", "ghost",
    lambda: choice(then=branch("t", node("Add", "x ghost", "t"))), choice)
row("sub-graph that reads the other branch", "e",
    lambda: choice(then=branch("t", node("Add", "x e", "t"))), choice)
row("sub-graph that hides an outer name", "x",
    lambda: choice(then=branch("x", node("Relu", "x", "x"))), choice)
row("sub-graph output that nothing makes", "ghost",
    lambda: choice(then=branch("ghost", node("Relu", "x", "t"))), choice)
row("sub-graph without outputs", "",
    lambda: choice(then=helper.make_graph([node("Relu", "x", "t")], "b", [], [])), choice)
row("condition that is not a truth value", "If",
    lambda: model([node("If", "x", "y", then_branch=branch("t", node("Relu", "x", "t")),
                        else_branch=branch("e", node("Abs", "x", "e")))],
                  [info("x", T.FLOAT, ["B", 4])], [info("y")]), choice)


def later(cycle):
    """A branch reads the result of a later node: this can be sorted, unless there is a cycle."""
    m = choice(then=branch("t", node("Add", "x z", "t")))
    m.graph.node.append(node("Neg", "y" if cycle else "x", "z"))
    return m


row("cycle through a sub-graph", "", lambda: later(True), lambda: later(False))

# ---- functions -----------------------------------------------------------------------------------


def function(name, *made, inputs=("a",), outputs=("r",), attributes=()):
    """A model-local function."""
    return helper.make_function("local", name, list(inputs), list(outputs), list(made),
                                [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
                                list(attributes))


def call(name, inputs="a", output="r"):
    """A node that calls a function."""
    return helper.make_node(name, inputs.split(" "), [output], domain="local")


def calling(*functions, inputs="x"):
    """y = F0(x) with these functions."""
    return model([call("F0", inputs, "y")], [info("x", T.FLOAT, ["B", 4])], [info("y")],
                 functions=functions, domains=["local"])


def chain(length):
    """F0 calls F1 calls … Relu."""
    made = [function(f"F{i}", call(f"F{i + 1}")) for i in range(length - 1)]
    return calling(*made, function(f"F{length - 1}", node("Relu", "a", "r")))


def through_if():
    """F0 contains an If whose branch calls F0."""
    then = branch("t", call("F0", "a", "t"))
    other = branch("e", node("Relu", "a", "e"))
    truth = helper.make_node("Constant", [], ["c"], value=tensor("", np.array(True)))
    return calling(function("F0", truth, node("If", "c", "r", then_branch=then,
                                              else_branch=other)))


def doubling(levels):
    """Each function calls the next one twice: 2^levels nodes after inlining."""
    made = [function(f"F{i}", call(f"F{i + 1}", "a", "m"), call(f"F{i + 1}", "m", "r"))
            for i in range(levels)]
    return calling(*made, function(f"F{levels}", node("Relu", "a", "r")))


LEAF = function("F0", node("Relu", "a", "r"))
row("function that calls itself", "F0", calling(function("F0", call("F0"))), calling(LEAF))
row("functions that call each other", "F",
    calling(function("F0", call("F1")), function("F1", call("F0"))), chain(2))
row("functions in a ring of ten", "F",
    calling(*(function(f"F{i}", call(f"F{(i + 1) % 10}")) for i in range(10))), chain(10))
row("function that calls itself through If", "F0", through_if, calling(LEAF))
row("calls 65 deep", "64", chain(65), chain(64))
row("calls 2 000 deep", "", chain(2000), chain(3))
row("function that doubles 40 times", "", doubling(40), doubling(4))
row("10 001 functions", "functions", lambda: calling(LEAF, *(
    function(f"G{i}", node("Relu", "a", "r")) for i in range(10_000))),
    lambda: calling(LEAF, *(function(f"G{i}", node("Relu", "a", "r")) for i in range(100))))
row("function twice", "F0", calling(LEAF, LEAF), calling(LEAF))
row("function that is not there", "F0", calling(), calling(LEAF))
row("function called with too many inputs", "F0", calling(LEAF, inputs="x x"), calling(LEAF))
row("function output that nothing makes", "r", calling(function("F0", node("Relu", "a", "q"))),
    calling(LEAF))
row("function that reads the graph's values", "x",
    calling(function("F0", node("Add", "a x", "r"))), calling(LEAF))
row("function with a cycle inside", "", calling(function("F0", node("Add", "a q", "r"),
                                                         node("Relu", "r", "q"))), calling(LEAF))


def attributed(given):
    """A function with an attribute that the caller sets, or does not."""
    inner = node("Softmax", "a", "r")
    reference = inner.attribute.add(name="axis", type=2)
    reference.ref_attr_name = "k"
    m = calling(function("F0", inner, attributes=["k"]))
    m.graph.node[0].attribute.extend([helper.make_attribute("k", given)])
    return m


row("function attribute of the wrong type", "", attributed("one"), attributed(-1))

# ---- quantised weights ---------------------------------------------------------------------------

NB = {"K": 32, "N": 4, "bits": 4, "block_size": 32}


def nbits(shape=(4, 1, 16), scales=(4, 1), zero=None, width=32, **attrs):
    """MatMulNBits of x [B,width] with [N,blocks,bytes] codes."""
    rng = np.random.default_rng(3)
    constants = {"b": rng.integers(0, 255, shape).astype(np.uint8), "s": weights(scales)}
    if zero is not None:
        constants["z"] = zero
    return one("MatMulNBits", ["x", *constants], constants=constants, domain="com.microsoft",
               shapes={"x": ["B", width]}, **{**NB, **attrs})


for label, attrs in (("block size 0", {"block_size": 0}), ("block size 17", {"block_size": 17}),
                     ("block size -32", {"block_size": -32}), ("3 bits", {"bits": 3}),
                     ("K 0", {"K": 0}), ("K -32", {"K": -32}), ("N 0", {"N": 0}),
                     ("N 2^62", {"N": 1 << 62}), ("K 2^62", {"K": 1 << 62}),
                     ("accuracy level 9", {"accuracy_level": 9}), ("block size 2^40",
                                                                   {"block_size": 1 << 40})):
    row(f"MatMulNBits with {label}", "", nbits(**attrs), nbits())
late("MatMulNBits with fewer codes", "", nbits(shape=(3, 1, 16)), nbits())
late("MatMulNBits with half blocks", "", nbits(shape=(4, 1, 8)), nbits())
late("MatMulNBits with fewer scales", "", nbits(scales=(3, 1)), nbits(scales=(4,)))
row("MatMulNBits with another K", "", nbits(width=31), nbits())
late("MatMulNBits with short zero points", "", nbits(zero=np.zeros(3, np.uint8)),
    nbits(zero=np.zeros(4, np.uint8)))

# ---- operands whose shapes and types show the error ------------------------------------------------


def listed(name, good, place=1, **more):
    """A row: input `place` of the op should be a list of integers, but is a matrix."""
    bad = list(good)
    bad[place - 1] = good[place - 1].reshape(1, -1)
    row(f"{name} with a matrix as input {place}", "rank", op(name, *bad, **more),
        op(name, *good, **more))


def norm(scale, residual=False, bias=None):
    """An RMS norm of x [B,4]."""
    constants = {"c": scale}
    if bias is not None:
        constants["bias"] = bias
    name = "SkipSimplifiedLayerNormalization" if residual else "SimplifiedLayerNormalization"
    return one(name, ["x", *(["x"] if residual else []), *constants], constants=constants,
               domain="com.microsoft" if residual else "")


AXIS = ints(1)
listed("ReduceSum", [AXIS])
listed("Reshape", [ints(-1, 4)])
listed("Expand", [ints(1, 4)])
listed("Tile", [ints(1, 2)])
listed("Unsqueeze", [AXIS])
listed("Squeeze", [AXIS], shapes={"x": ["B", 1, 4]})
listed("Split", [ints(4)], axis=1)
listed("Pad", [ints(0, 0, 1, 1)])
listed("Pad", [ints(1, 1), np.float32(0), AXIS], 3, opset=18)
for at in range(1, 5):
    listed("Slice", [ints(0), ints(2), AXIS, ints(1)], at)
row("ConstantOfShape of a matrix", "rank", one("ConstantOfShape", ["c"], constants={"c": ints(2, 3)
    .reshape(2, 1)}), filled(2, 3))
row("Pad with two values", "constant_value", op("Pad", ints(0, 0, 1, 1), weights(2)),
    op("Pad", ints(0, 0, 1, 1), weights(1)))
row("Reshape with 9 dims", "maximum", op("Reshape", ints(-1, 4, *[1] * 7)),
    op("Reshape", ints(-1, 4, *[1] * 6)))
row("CumSum with two axes", "axis", op("CumSum", ints(0, 1)), op("CumSum", AXIS))
row("Range with two steps", "delta", one("Range", list("abc"), constants={
    "a": np.int64(0), "b": np.int64(4), "c": ints(1, 2)}, shapes={"y": T.INT64}), ranged(0, 4, 1))
row("TopK with two k", "k", one("TopK", ["x", "k"], ["y", "i"], {"k": ints(1, 2)}),
    one("TopK", ["x", "k"], ["y", "i"], {"k": ints(2)}, {"i": T.INT64}))
row("Trilu with two diagonals", "k", op("Trilu", ints(0, 1)), op("Trilu", AXIS))
row("Trilu with a diagonal that is no integer", "k", op("Trilu", weights(1)), op("Trilu", AXIS))
row("If with two conditions", "cond", lambda: choice(condition=[2]), lambda: choice(condition=[1]))
row("a norm with one weight for rows of 4", "scale", norm(weights(1)), norm(weights(4)))
row("a norm with a residual and weights of two rows", "gamma", norm(weights((2, 4)), residual=True),
    norm(weights(4), residual=True))
row("a norm with a residual and one bias", "bias", norm(weights(4), residual=True, bias=weights(1)),
    norm(weights(4), residual=True, bias=weights(4)))

CONV = {"w": weights((4, 1, 3)), "b": weights(4)}


def conv(past=2, **change):
    """CausalConvWithState of x [B,4,S] with three taps."""
    return one("CausalConvWithState", ["x", "w", "b", "past"], ["y", "present"], {**CONV, **change},
               {"x": ["B", 4, "S"], "past": ["B", 4, past]}, domain="com.microsoft")


for label, change in (("a matrix of weights", {"w": weights((4, 3))}),
                      ("weights of five channels", {"w": weights((5, 1, 3))}),
                      ("weights of channels with each other", {"w": weights((4, 4, 3))}),
                      ("no taps", {"w": weights((4, 1, 0))}),
                      ("five biases", {"b": weights(5)}), ("a state of three inputs", {"past": 3})):
    row(f"CausalConvWithState with {label}", "", conv(**change), conv())


def gate(bias):
    """LinearAttentionGate of a [B,S,4]."""
    return one("LinearAttentionGate", ["a", "bias", "scale"], constants={
        "bias": bias, "scale": weights(4)}, shapes={"a": ["B", "S", 4]}, domain="com.microsoft")


for label, bias in (("a matrix", weights((1, 4))), ("five elements", weights(5))):
    row(f"LinearAttentionGate with {label} as dt_bias", "dt_bias", gate(bias), gate(weights(4)))

# ---- mixtures of experts -------------------------------------------------------------------------

CODES = {"fc1": np.zeros((4, 16, 16), np.uint8), "scales1": weights((4, 16, 2)),
         "bias1": weights((4, 16)), "fc2": np.zeros((4, 32, 8), np.uint8),
         "scales2": weights((4, 32, 1)), "bias2": weights((4, 32))}


def mixture(k=2, experts=4, block=16, zero=None, **change):
    """QMoE of x [B,32] with four experts of 16, in codes of 4 bits."""
    constants = {**CODES, "scales2": weights((4, 32, 16 // (block or 16))), **change}
    inputs = ["x", "router", *constants]
    if zero is not None:
        constants["zero"] = zero
        inputs += ["", "", "", "zero"]
    return one("QMoE", inputs, constants=constants,
               shapes={"x": ["B", 32], "router": ["B", experts]}, domain="com.microsoft", k=k,
               block_size=block, expert_weight_bits=4)


for label, change in (
        ("codes of i8", {"fc1": CODES["fc1"].astype(np.int8)}),
        ("scales of u32", {"scales2": np.ones((4, 32, 1), np.uint32)}),
        ("a bias of f16", {"bias1": weights((4, 16)).astype(np.float16)}),
        ("a matrix of codes", {"fc2": np.zeros((4, 256), np.uint8)}),
        ("codes of eight experts", {"fc1": np.zeros((8, 8, 16), np.uint8)}),
        ("router values of three experts", {"experts": 3}),
        ("five of four experts", {"k": 5}),
        ("a scale for each row, and blocks of 16", {"scales1": weights((4, 16))}),
        ("a short bias", {"bias2": weights((4, 31))}),
        ("rows of another length", {"fc1": np.zeros((4, 16, 24), np.uint8),
                                    "scales1": weights((4, 16, 3))}),
        ("short zero points", {"zero": np.zeros((4, 15, 1), np.uint8)})):
    row(f"QMoE with {label}", "", mixture(**change), mixture(zero=np.zeros((4, 16, 1), np.uint8)))


def floats(**change):
    """MoE of x [B,32] with four experts of 16."""
    constants = {"fc1": weights((4, 16, 32)), "bias1": weights((4, 16)),
                 "fc2": weights((4, 32, 16)), **change}
    return one("MoE", ["x", "router", *constants], constants=constants,
               shapes={"x": ["B", 32], "router": ["B", 4]}, domain="com.microsoft", k=2)


for label, change in (("weights of another type", {"fc1": weights((4, 16, 32)).astype(np.float16)}),
                      ("three experts in fc2", {"fc2": weights((3, 32, 16))}),
                      ("rows of 31", {"fc1": weights((4, 16, 31))})):
    row(f"MoE with {label}", "", floats(**change), floats())
