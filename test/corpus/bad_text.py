"""Hostile text IR: how a row changes the dump of a tiny model, and the expected message.

A row edits one of the bases with (old, new) pairs, or has its own text. gqac itself writes the
bases: "stateful" and "plan" are dumps of tiny_model() after those passes. The valid twin is the
unedited base, unless the row has a text or edits for it. Every `old` must occur, so that a change
of the dumps cannot make a row useless.
"""

from dataclasses import dataclass, field
from typing import Sequence

import numpy as np
from onnx import TensorProto as T, helper

from tiny import F32, I32, I64, info, model, tensor

IDS = "3 5 2 1"  # the input of score
ROWS = []


@dataclass
class TextRow:
    """One hostile text and its valid twin."""

    name: str
    kind: str
    word: str              # must be in the message, in any case
    base: str = "stateful"  # "stateful", "plan" or "" (bad and twin are whole texts)
    bad: Sequence = ()     # (old, new) pairs, or the text
    twin: Sequence = ()    # the same
    verb: str = "score"    # score, run, inspect
    code: object = 3
    inputs: dict = field(default_factory=dict)  # for run: name to array


def tiny_model():
    """Embedding, one GroupQueryAttention of 2 heads of 2, logits of 6 ids."""
    r = np.random.default_rng(1)

    def eighths(*shape):
        return r.integers(-8, 8, shape).astype(np.float32) / 8

    one = np.array([1], np.int64)
    constants = {"emb": eighths(6, 4), "w": eighths(4, 12), "out": eighths(4, 6), "axis": one,
                 "one": one, "index": np.array(1, np.int64)}
    nodes = [helper.make_node("Gather", ["emb", "input_ids"], ["x"]),
             helper.make_node("MatMul", ["x", "w"], ["qkv"]),
             helper.make_node("ReduceSum", ["attention_mask", "axis"], ["sum"], keepdims=1),
             helper.make_node("Sub", ["sum", "one"], ["before"]),
             helper.make_node("Cast", ["before"], ["seqlens"], to=I32),
             helper.make_node("Shape", ["attention_mask"], ["shape"]),
             helper.make_node("Gather", ["shape", "index"], ["total64"], axis=0),
             helper.make_node("Cast", ["total64"], ["total"], to=I32),
             helper.make_node("GroupQueryAttention",
                              ["qkv", "", "", "pk", "pv", "seqlens", "total"], ["y", "ok", "ov"],
                              domain="com.microsoft", num_heads=2, kv_num_heads=2),
             helper.make_node("MatMul", ["y", "out"], ["logits"])]
    past, present = ["B", 2, "P", 2], ["B", 2, "TT", 2]
    return model(nodes, [info("input_ids", I64, ["B", "S"]), info("attention_mask", I64,
                                                                  ["B", "TT"]),
                         info("pk", F32, past), info("pv", F32, past)],
                 [info("logits", F32, ["B", "S", 6]), info("ok", F32, present),
                  info("ov", F32, present)], [tensor(n, a) for n, a in constants.items()], 18)


def edit(kind, name, word, *bad, **more):
    """A row that edits a base."""
    ROWS.append(TextRow(name, kind, word, bad=bad, **more))


def text(kind, name, word, bad, twin, verb="inspect", **more):
    """A row with whole texts."""
    ROWS.append(TextRow(name, kind, word, base="", bad=bad, twin=twin, verb=verb, **more))


# ---- KV state ------------------------------------------------------------------------------------

STATE = 'slot=0, past="pk", present="ok", heads=2, head_size=2, dtype=f32'
APPEND = "kv_append %kv_state, %split_heads.1, %gqac.past_len, %gqac.new_len {slot=0}"

for label, new in (("more heads than the rows", "heads=64, head_size=2"),
                   ("fewer heads than the rows", "heads=1, head_size=2"),
                   ("longer heads than the rows", "heads=2, head_size=1024"),
                   ("shorter heads than the rows", "heads=2, head_size=1"),
                   ("as many elements, otherwise cut", "heads=1, head_size=4")):
    for base in ("stateful", "plan"):
        edit("kv", f"state of {label}, {base}", "kv_append", (STATE, STATE.replace(
            "heads=2, head_size=2", new)), base=base)
for base in ("stateful", "plan"):
    edit("kv", f"append to a slot that is not there, {base}", "slot",
         (APPEND, APPEND.replace("slot=0", "slot=77")), base=base)
edit("kv", "append to the slot of another token", "slot",
     (APPEND, APPEND.replace("slot=0", "slot=1")))
edit("kv", "append to slot -1", "slot", (APPEND, APPEND.replace("slot=0", "slot=-1")))
edit("kv", "append to slot 2^40", "slot", (APPEND, APPEND.replace("slot=0", "slot=1099511627776")))
edit("kv", "two states of one slot", "slot",
     ('slot=1, past="pv"', 'slot=0, past="pv"'), (".new_len {slot=1}", ".new_len {slot=0}"))
edit("kv", "slots with a hole", "slot",
     ('slot=1, past="pv"', 'slot=5, past="pv"'), (".new_len {slot=1}", ".new_len {slot=5}"))
edit("kv", "slot 2^31 - 1", "slot", ('slot=1, past="pv"', 'slot=2147483647, past="pv"'),
     (".new_len {slot=1}", ".new_len {slot=2147483647}"))
edit("kv", "slot -1", "slot", (STATE, STATE.replace("slot=0", "slot=-1")))
edit("kv", "no heads", "heads", (STATE, STATE.replace("heads=2", "heads=0")))
edit("kv", "2^62 heads", "", (STATE, STATE.replace("heads=2", "heads=4611686018427387904")),
     code=(3, 4))
edit("kv", "head size -2", "head_size", (STATE, STATE.replace("head_size=2", "head_size=-2")))
for dtype in ("f16", "i64", "token", "i4"):
    edit("kv", f"state of {dtype}", "", (STATE, STATE.replace("dtype=f32", f"dtype={dtype}")))
edit("kv", "state without a dtype", "dtype", (STATE, STATE.replace(", dtype=f32", "")))
edit("kv", "token used twice", "token", ("kv_append %kv_state.1,", "kv_append %kv_state,"),
     ("{slot=1}", "{slot=0}"))
edit("kv", "append without a token", "token",
     ("kv_append %kv_state,", "kv_append %gqac.past_len,"))
edit("kv", "append with too few inputs", "kv_append", (", %gqac.past_len, %gqac.new_len {slot=0}",
                                                       " {slot=0}"))
edit("kv", "append of an absent value", "kv_append",
     ("%kv_state, %split_heads.1,", "%kv_state, _,"))
edit("kv", "append of rank 3", "rank", ("%kv_state, %split_heads.1,", "%kv_state, %x,"))
edit("kv", "past and new lengths swapped", "",
     (APPEND, APPEND.replace("%gqac.past_len, %gqac.new_len", "%gqac.new_len, %gqac.past_len")),
     code=(0, 3, 4))
edit("kv", "append of query rows that attention reads", "",
     ("attention %split_heads, %kv_append.1, %kv_append.3",
      "attention %split_heads, %kv_append.3, %kv_append.1"), code=0)
edit("kv", "a state that is never appended to", "",
     ("%kv_append.2 as \"state.1\"", "%kv_state.1 as \"state.1\""), code=(0, 3))
edit("kv", "a state that a stateless run meets", "stateless run",
     ("return %logits,", "return %logits as \"logits\","), verb="run", code=2)

# ---- notes of the plan ---------------------------------------------------------------------------

for slot in ("2147483647", "2000000000", "99999999999", "-1", "x"):
    edit("notes", f"into {slot}", "", ("into 9 via", f"into {slot} via"), base="plan",
         code=(0, 3))
edit("notes", "every value into slot 0", "", ("into 1 via", "into 0 via"),
     ("into 9 via", "into 0 via"), ("into 10 via", "into 0 via"), base="plan", code=(0, 3))
edit("notes", "more slots than outputs", "", ("into 9 via", "into 9, 10, 11 via"), base="plan",
     code=(0, 3))
edit("notes", "a kernel that is not there", "", ('via "ref.kv_append"', 'via "ref.ghost"'),
     base="plan", code=(0, 3))
edit("notes", "a kernel of another op", "", ('via "ref.kv_append"', 'via "ref.kv_state"'),
     base="plan", code=(0, 3))
edit("notes", "an empty kernel", "", ('via "ref.kv_append"', 'via ""'), base="plan", code=(0, 3))
NEG = "graph @g(%x: f32[4]{}) {{\n  %y = Neg %x : f32[4]{}\n  return %y\n}}\n"
X4 = {"x": np.ones(4, np.float32)}
text("notes", "an input into slot 2^31 - 1", "", NEG.format(" into 2147483647", ""),
     NEG.format("", ""), verb="run", inputs=X4, code=(0, 3))
text("notes", "an output into slot 2e9", "", NEG.format("", " into 2000000000"),
     NEG.format("", ""), verb="run", inputs=X4, code=(0, 3))

# ---- constants -----------------------------------------------------------------------------------

DIGEST = "0123456789abcdef"
MATMUL = ("graph @g(%x: f32[4]) {{\n  const %w: f32[4,2] = {}\n"
          "  %y = MatMul %x, %w : f32[2]\n  return %y\n}}\n")
HEX = 'hex "' + "0000803f" * 8 + '"'
for verb in ("run", "inspect"):
    text("constants", f"a digest for weights, {verb}", "weights" if verb == "run" else "",
         MATMUL.format(f"sha256 {DIGEST}"), MATMUL.format(HEX), verb=verb, inputs=X4,
         code=3 if verb == "run" else (0, 3))
text("constants", "a short digest", "digest", MATMUL.format("sha256 01234567"),
     MATMUL.format(HEX), verb="run", inputs=X4)
text("constants", "a digest of other letters", "digest", MATMUL.format("sha256 xyz"),
     MATMUL.format(HEX))
text("constants", "hex of too few bytes", "", MATMUL.format('hex "0000803f"'), MATMUL.format(HEX))
text("constants", "hex of too many bytes", "",
     MATMUL.format(HEX[:-1] + '00"'), MATMUL.format(HEX))
text("constants", "hex of other letters", "",
     MATMUL.format(HEX.replace("8", "g")), MATMUL.format(HEX))
text("constants", "too few values", "", MATMUL.format("[1, 2, 3]"), MATMUL.format(HEX))
text("constants", "2^62 values", "",
     MATMUL.format(HEX).replace("f32[4,2] =", "f32[2147483648,2147483648] ="), MATMUL.format(HEX))
text("constants", "a digest of 2^62 values", "",
     MATMUL.format(f"sha256 {DIGEST}").replace("f32[4,2] =", "f32[2147483648,2147483648] ="),
     MATMUL.format(HEX), verb="run", inputs=X4)
text("constants", "a constant of symbolic shape", "",
     MATMUL.format(HEX).replace("f32[4,2] =", "f32[N,2] ="), MATMUL.format(HEX))
text("constants", "a constant that is a token", "",
     MATMUL.format(HEX).replace("f32[4,2] =", "token ="), MATMUL.format(HEX))
edit("constants", "a digest in a sequence program", "weights",
     ("%out: f32[4,6] = hex", f"%out: f32[4,6] = sha256 {DIGEST} //"))

# ---- types ---------------------------------------------------------------------------------------

# The declared type of a node is replaced by the type that its op infers, so such a text is
# accepted.
edit("types", "logits said to be wider", "", (": f32[B,S,6]", ": f32[B,S,6000000]"), code=(0, 3))
edit("types", "logits said to be narrower", "", (": f32[B,S,6]", ": f32[B,S,2]"), code=(0, 3))
edit("types", "logits of integers", "", (": f32[B,S,6]", ": i64[B,S,6]"), code=(0, 3))
edit("types", "logits of rank 2", "", (": f32[B,S,6]", ": f32[B,S]"), code=(0, 3))
edit("types", "ids said to be floats", "indices",
     ("%input_ids: i64[B,S]", "%input_ids: f32[B,S]"))
edit("types", "ids of rank 1", "", ("%input_ids: i64[B,S]", "%input_ids: i64[S]"))
edit("types", "ids of rank 3", "", ("%input_ids: i64[B,S]", "%input_ids: i64[B,S,1]"))
edit("types", "ids of a constant batch", "", ("%input_ids: i64[B,S]", "%input_ids: i64[7,S]"),
     code=(0, 3, 4))
edit("types", "past lengths of i64", "past_len", ("past_len: i32[B]", "past_len: i64[B]"))
edit("types", "past lengths of rank 0", "past_len", ("past_len: i32[B]", "past_len: i32[]"))
edit("types", "new lengths of floats", "new_len", ("new_len: i32[B]", "new_len: f32[B]"))
edit("types", "new lengths of rank 2", "new_len", ("new_len: i32[B]", "new_len: i32[B,1]"))
edit("types", "a total length of rank 1", "total_len",
     ("new_len: i32[B])", "new_len: i32[B], %gqac.total_len: i64[B])"), code=(0, 3))
edit("types", "a total length of floats", "total_len",
     ("new_len: i32[B])", "new_len: i32[B], %gqac.total_len: f32[])"))
edit("types", "positions of floats", "position_ids",
     ("new_len: i32[B])", "new_len: i32[B], %position_ids: f32[B,S])"))
edit("types", "an input that nobody feeds", "other",
     ("new_len: i32[B])", "new_len: i32[B], %other: f32[B,S])"))
edit("types", "an input twice", "input_ids",
     ("new_len: i32[B])", "new_len: i32[B], %input_ids: i64[B,S])"))
edit("types", "ids by another name", "", ("%input_ids", "%ids"), code=(0, 3))
LYING = """graph @g(%input_ids: i64[B,S], %gqac.past_len: i32[B], %gqac.new_len: i32[B]) {
  const %axes: i64[2] = [1, 3]
  const %axis: i64[1] = [2]
  const %one: i64[1] = [1]
  const %k: i64[1] = [FACTOR]
  %f = Cast %input_ids {to=f32} : f32[B,S]
  %n = Unsqueeze %f, %axes : f32[B,1,S,1]
  %l = Unsqueeze %f, %axis : f32[B,S,1]
  %m = ReduceMax %input_ids {keepdims=0} : i64[]
  %m1 = Reshape %m, %one : i64[1]
  %m2 = Mul %m1, %k : i64[1]
  %m3 = Max %m2, %k : i64[1]
  %shape = Concat %one, %one, %m3 {axis=0} : i64[3]
  %lg = Expand %l, %shape : f32[B,S,16]
  %st = kv_state {slot=0, past="pk", present="ok", heads=1, head_size=1, dtype=f32} : token
  %t, %r = kv_append %st, %n, %gqac.past_len, %gqac.new_len {slot=0} : token, f32[B,1,kv_len,1]
  return %lg as "logits", %t as "state.0"
}
"""
# Its width is max(m - m, 16), for any ids.
HONEST = LYING.replace("FACTOR", "16").replace("Mul %m1, %k", "Sub %m1, %m1")
text("types", "logits whose width grows with the ids", "columns", LYING.replace("FACTOR", "100000"),
     HONEST, verb="score")
text("types", "logits that are too narrow when it runs", "columns", LYING.replace("FACTOR", "2"),
     HONEST, verb="score")

# ---- shapes and attributes -----------------------------------------------------------------------

SPLIT = ("graph @g(%x: f32[N]) {{\n  const %s: i64[2] = {}\n"
         "  {}, %y = Split %x, %s {{axis=0}} : {}, f32[3]\n  return %y\n}}\n")
X4N = {"x": np.ones(4, np.float32)}
text("shapes", "split beyond the axis into an absent output", "", SPLIT.format(
    "[100, 3]", "_", "_"), SPLIT.format("[1, 3]", "_", "_"), verb="run", inputs=X4N, code=(3, 4))
text("shapes", "negative split", "", SPLIT.format("[-1, 5]", "%a", "f32[1]"),
     SPLIT.format("[1, 3]", "%a", "f32[1]"), verb="run", inputs=X4N, code=(3, 4))
HEADS = "graph @g(%x: f32[1,1,6]) {{\n  %a, %b, %c = split_heads %x {{q={}, kv={}}} : {}\n" \
        "  return %a, %b, %c\n}}\n"
SPLIT_TYPES = "f32[1,1,1,2], f32[1,1,1,2], f32[1,1,1,2]"
for q, kv in (("9223372036854775807", "9223372036854775807"), ("0", "1"), ("-1", "1"),
              ("1", "-3"), ("4611686018427387904", "1"), ("5", "1")):
    text("shapes", f"{q} and {kv} heads", "heads", HEADS.format(q, kv, SPLIT_TYPES),
         HEADS.format(1, 1, SPLIT_TYPES))
BIG = ("graph @g(%x: f32[1]) {{\n  const %n: i64[2] = [{0}, {0}]\n"
       "  %y = Expand %x, %n : f32[{0},{0}]\n  return %y\n}}\n")
X1 = {"x": np.ones(1, np.float32)}
for many in ("3000000000", "4294967296", "9223372036854775807"):
    text("shapes", f"{many}² values", "", BIG.format(many), BIG.format(3), verb="run", inputs=X1,
         code=(3, 4))
text("shapes", "a dim beyond 2^63", "", BIG.format("99999999999999999999"), BIG.format(3))
text("shapes", "a negative dim", "", NEG.format("", "").replace("x: f32[4]", "x: f32[-4]"),
     NEG.format("", ""), code=(0, 3))
text("shapes", "a dim divided by zero", "", NEG.format("", "").replace(
    "x: f32[4]", "x: f32[floordiv(N,0)]"), NEG.format("", ""))
text("shapes", "rank 40", "", NEG.format("", "").replace(
    "x: f32[4]", "x: f32[" + ",".join(["1"] * 40) + "]"), NEG.format("", ""))
text("shapes", "a deep dim", "", NEG.format("", "").replace(
    "x: f32[4]", "x: f32[" + "(" * 20000 + "N" + ")" * 20000 + "]"), NEG.format("", ""))
SOFTMAX = ("graph @g(%x: f32[4]) {{\n  %y = Softmax %x {} : f32[4]\n  return %y\n}}\n")
for label, word, attrs in (("unknown attribute", "ghost", "{ghost=1}"),
                           ("attribute twice", "axis", "{axis=0, axis=0}"),
                           ("attribute of another type", "integer", '{axis="0"}'),
                           ("axis 2^63", "", "{axis=9223372036854775808}"),
                           ("axis 7", "axis", "{axis=7}"),
                           ("axis -2^63", "axis", "{axis=-9223372036854775808}"),
                           ("open attributes", "", "{axis=0"),
                           ("a graph for a number", "integer",
                            "{axis=graph @n() {\n    return %x\n  }}")):
    text("attributes", label, word, SOFTMAX.format(attrs), SOFTMAX.format("{axis=0}"))
edit("attributes", "a scale that is no number", "", ("scale=0.70710677", "scale=ghost"))
edit("attributes", "an unknown op", "ghost", ("= attention %", "= ghost %"))
edit("attributes", "too many inputs", "attention",
     ("%gqac.new_len {scale", "%gqac.new_len, _, _, %x, %x, %x {scale"))
edit("attributes", "too many results", "", ("%attention = attention",
                                                     "%attention, %more = attention"))
edit("attributes", "a negative axis of a table", "axis", ("%x = Gather %emb, %input_ids :",
                                                          "%x = Gather %emb, %input_ids {axis=-9} :"
                                                          ))

# ---- nested graphs -------------------------------------------------------------------------------

IF = ("graph @g(%c: bool[], %x: f32[4]) {{\n  %a = Neg %x : f32[4]\n"
      "  %y = If %c {{then_branch=graph @t() {{\n{}  }}, else_branch=graph @e() {{\n"
      "    %e = Abs %x : f32[4]\n    return %e\n  }}}} : f32[4]\n  return %a, %y\n}}\n")
THEN = "    %t = Exp %a : f32[4]\n    return %t\n"
for label, word, body in (
        ("a branch that uses what comes later", "y", "    %t = Exp %y : f32[4]\n    return %t\n"),
        ("a branch that uses the other's value", "e", "    %t = Exp %e : f32[4]\n    return %t\n"),
        ("a branch without results", "", "    return\n"),
        ("a branch with too many results", "", "    return %a, %x\n"),
        ("a branch without return", "", "    %t = Exp %a : f32[4]\n"),
        ("a branch of another type", "", "    %t = Cast %a {to=i64} : i64[4]\n    return %t\n"),
        ("a branch that takes a name of the graph", "a",
         "    %a = Exp %x : f32[4]\n    return %a\n")):
    text("nested", label, word, IF.format(body), IF.format(THEN), verb="run",
         inputs={"c": np.array(True), **X4}, code=(3, 4))
text("nested", "a branch that returns an outer value", "", IF.format("    return %a\n"),
     IF.format(THEN), verb="run", inputs={"c": np.array(True), **X4}, code=0)
text("nested", "a branch missing", "ghost", IF.format(THEN).replace(", else_branch=", ", ghost="),
     IF.format(THEN))
text("nested", "a branch with inputs", "", IF.format(THEN).replace("@t()", "@t(%q: f32[4])"),
     IF.format(THEN), verb="run", inputs={"c": np.array(True), **X4})


def deep(levels):
    """Nested Ifs."""
    inner = "return %x\n"
    for i in range(levels):
        inner = (f"%v{i} = If %c {{then_branch=graph @t{i}() {{\n{inner}}}, "
                 f"else_branch=graph @e{i}() {{\nreturn %x\n}}}} : f32[4]\nreturn %v{i}\n")
    return f"graph @g(%c: bool[], %x: f32[4]) {{\n{inner}}}\n"


text("nested", "5000 branches in each other", "", deep(5000), deep(4))
edit("nested", "an append in a branch", "",
     ("new_len: i32[B]) {\n", "new_len: i32[B]) {\n  const %yes: bool[] = 1\n"),
     (f"%kv_append, %kv_append.1 = {APPEND} : token, f32[B,2,kv_len,2]",
      "%kv_append, %kv_append.1 = If %yes {then_branch=graph @t() {\n"
      f"    %p, %q = {APPEND} : token, f32[B,2,kv_len,2]\n    return %p, %q\n  }}, "
      "else_branch=graph @e() {\n"
      f"    %r, %s = {APPEND} : token, f32[B,2,kv_len,2]\n    return %r, %s\n  }}}}"
      " : token, f32[B,2,kv_len,2]"), code=(0, 3))

# ---- the text itself -----------------------------------------------------------------------------

for label, word, bad in (("nothing", "", ""), ("zeros", "", "\0" * 100),
                         ("half a graph", "", NEG.format("", "")[:40]),
                         ("two graphs", "", NEG.format("", "") * 2),
                         ("a result that nobody makes", "ghost",
                          NEG.format("", "").replace("return %y", "return %ghost")),
                         ("an open string", "", 'graph @g(%x: f32[4]) {\n  return %x as "a\n}\n'),
                         ("an output named twice", "a",
                          'graph @g(%x: f32[4]) {\n  %y = Neg %x : f32[4]\n'
                          '  return %y as "a", %x as "a"\n}\n'),
                         ("a name of 1 MB", "", NEG.format("", "").replace("%y",
                              "%" + "y" * (1 << 20)
                                                                           + "?")),
                         ("an op of 1 MB", "", NEG.format("", "").replace("Neg", "N" * (1 << 20)))):
    text("text", label, word, bad, NEG.format("", ""),
         code=(0, 3) if label == "an output named twice" else 3)
