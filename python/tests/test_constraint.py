"""Constraints: masks are those of an implementation that shares nothing with gqac's, and answers satisfy
their schema by jsonschema."""

import ctypes
import functools
import json
import math
import os
import random

import gqac
import jsonschema
import pytest
from gqac import _declarations as c
from gqac._constraint import constraint
from gqac._library import call, lib, out_pointer

FULL = os.environ.get("GQAC_TEST_FULL") == "1"

# ---- the oracle: derivatives of expressions over bytes (Brzozowski 1964) --------------------------------
# ("never",), ("empty",), ("bytes", set), ("cat", a, b), ("or", a, b), ("star", a), ("rule", name)

NEVER, EMPTY = ("never",), ("empty",)


def cat(*parts):
    """One after the other."""
    result = EMPTY
    for part in reversed(parts):
        if NEVER in (part, result):
            return NEVER
        result = part if result == EMPTY else result if part == EMPTY else ("cat", part, result)
    return result


def either(*parts):
    """One of them."""
    result = NEVER
    for part in parts:
        result = part if result in (NEVER, part) else result if part == NEVER else ("or", result, part)
    return result


def lit(text):
    """These bytes."""
    return cat(*[("bytes", frozenset([byte])) for byte in text.encode()])


def between(low, high):
    """One byte of a range."""
    return ("bytes", frozenset(range(low, high + 1)))


def chars(allowed):
    """One of these characters."""
    return either(*[lit(char) for char in allowed])


def times(part, least, most):
    """A number of repetitions."""
    optional = EMPTY
    for _ in range(most - least):
        optional = either(EMPTY, cat(part, optional))
    return cat(*[part] * least, optional)


TAIL = between(0x80, 0xbf)
# Unicode 15, table 3-7: characters of more than one byte
WIDE = either(cat(between(0xc2, 0xdf), TAIL), cat(between(0xe0, 0xe0), between(0xa0, 0xbf), TAIL),
              cat(between(0xe1, 0xec), TAIL, TAIL), cat(between(0xed, 0xed), between(0x80, 0x9f), TAIL),
              cat(between(0xee, 0xef), TAIL, TAIL),
              cat(between(0xf0, 0xf0), between(0x90, 0xbf), TAIL, TAIL),
              cat(between(0xf1, 0xf3), TAIL, TAIL, TAIL),
              cat(between(0xf4, 0xf4), between(0x80, 0x8f), TAIL, TAIL))


class Oracle:
    """The texts of a set of rules, of which "root" is the whole."""

    def __init__(self, **rules):
        self.rules = rules
        self.derive = functools.cache(self._derive)
        self.empty = functools.cache(self._empty)

    def _empty(self, e):
        if e[0] == "cat":
            return self.empty(e[1]) and self.empty(e[2])
        if e[0] == "or":
            return self.empty(e[1]) or self.empty(e[2])
        return self.empty(self.rules[e[1]]) if e[0] == "rule" else e[0] in ("empty", "star")

    def _derive(self, e, byte):
        if e[0] == "bytes":
            return EMPTY if byte in e[1] else NEVER
        if e[0] == "cat":
            first = cat(self.derive(e[1], byte), e[2])
            return either(first, self.derive(e[2], byte)) if self.empty(e[1]) else first
        if e[0] == "or":
            return either(self.derive(e[1], byte), self.derive(e[2], byte))
        if e[0] == "star":
            return cat(self.derive(e[1], byte), e)
        return self.derive(self.rules[e[1]], byte) if e[0] == "rule" else NEVER

    def after(self, e, text):
        """What may follow these bytes; NEVER: they do not fit. (All rules here have an end.)"""
        for byte in text:
            e = self.derive(e, byte)
        return e


SPACE = either(EMPTY, lit(" "), cat(lit("\n"), either(times(lit(" "), 0, 40), times(lit("\t"), 1, 10))))
DIGIT, HEX = chars("0123456789"), chars("0123456789abcdefABCDEF")
UNIT = either(cat(chars("0123456789abcABCeEfF"), HEX, HEX, HEX), cat(chars("dD"), chars("01234567"), HEX, HEX),
              cat(chars("dD"), chars("89abAB"), HEX, HEX, lit("\\u"), chars("dD"), chars("cdefCDEF"), HEX, HEX))
PLAIN = either(("bytes", frozenset(range(0x20, 0x80)) - {0x22, 0x5c}), WIDE)
STRING = cat(lit('"'), ("star", either(PLAIN, cat(lit("\\"), either(chars('"\\/bfnrt'), cat(lit("u"), UNIT))))),
             lit('"'))
DIGITS = either(lit("0"), cat(chars("123456789"), times(DIGIT, 0, 14)))
NUMBER = cat(either(EMPTY, lit("-")), DIGITS, either(EMPTY, cat(lit("."), times(DIGIT, 1, 15))),
             either(EMPTY, cat(chars("eE"), either(EMPTY, chars("+-")), times(DIGIT, 1, 2))))
ANY = ("rule", "any")
MEMBER = cat(STRING, lit(":"), SPACE, ANY)
VALUE = either(
    cat(lit("{"), SPACE, either(EMPTY, cat(MEMBER, ("star", cat(lit(","), SPACE, MEMBER)), SPACE)), lit("}")),
    cat(lit("["), SPACE, either(EMPTY, cat(ANY, ("star", cat(lit(","), SPACE, ANY)), SPACE)), lit("]")),
    STRING, NUMBER, lit("true"), lit("false"), lit("null"))

CASES = {
    "words": ('root ::= ("the" | "then" | "there") (" " [a-d]*)* "."',
              Oracle(root=cat(either(lit("the"), lit("then"), lit("there")),
                              ("star", cat(lit(" "), ("star", chars("abcd")))), lit(".")))),
    "characters": ('root ::= [é漢😀\\-]{2,4} | [^\\x00-\\x7f] "é"+',
                   Oracle(root=either(times(chars("é漢😀-"), 2, 4),
                                      cat(WIDE, lit("é"), ("star", lit("é")))))),
    "nested": ('root ::= "(" root ")" root | "[" in "]" | ""\nin ::= [0-9]{1,3} ("," in)?',
               Oracle(root=either(cat(lit("("), ("rule", "root"), lit(")"), ("rule", "root")),
                                  cat(lit("["), ("rule", "in"), lit("]")), EMPTY),
                      **{"in": cat(times(DIGIT, 1, 3), either(EMPTY, cat(lit(","), ("rule", "in"))))})),
    "json": ({}, Oracle(root=ANY, any=VALUE)),
    "object": ({"properties": {"a b": {"type": "integer"}, "é": {"enum": ["x", "xé", None]},
                               "c": {"type": "string", "maxLength": 1}}, "required": ["é"]},
               Oracle(root=cat(
                   lit("{"), SPACE, either(EMPTY, cat(lit('"a b":'), SPACE, either(EMPTY, lit("-")), DIGITS,
                                                      lit(","), SPACE)),
                   lit('"é":'), SPACE, either(lit('"x"'), lit('"xé"'), lit("null")),
                   either(EMPTY, cat(lit(',') , SPACE, lit('"c":'), SPACE, lit('"'), either(
                       EMPTY, PLAIN, cat(lit("\\"), either(chars('"\\/bfnrt'), cat(lit("u"), UNIT)))),
                       lit('"'))), SPACE, lit("}")))),
}


def token_bytes(model):
    """The bytes of each id; None: special."""
    found = []
    with model.texts as texts:
        for token in range(model.vocabulary):
            out, n, special = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_bool()
            call("gqac_text_token_bytes", texts, token, ctypes.byref(out), ctypes.byref(n),
                 ctypes.byref(special))
            found.append(None if special.value else ctypes.string_at(out, n.value))
            lib.gqac_release(out)
    return found


@pytest.mark.parametrize("name", CASES)
def test_masks_are_those_of_the_oracle(model, name):
    given, oracle = CASES[name]
    tokens, draw = token_bytes(model), random.Random(name)
    eos = (ctypes.c_int64 * 1)(1)
    made = constraint(model, given, None) if isinstance(given, str) else constraint(model, None, given)
    for _ in range(40 if FULL else 3):
        state, left, said = out_pointer(), oracle.rules["root"], b""
        with made as pointer:
            call("gqac_constraint_begin", pointer, ctypes.byref(state))
        for _ in range(12):
            logits = (ctypes.c_float * len(tokens))()
            try:
                call("gqac_constraint_mask", state, logits, len(tokens), eos, 1)
            finally:
                found = {i for i, x in enumerate(logits) if not math.isnan(x)}
            fits = {i for i, b in enumerate(tokens) if b and oracle.after(left, b) != NEVER}
            assert found - {1} == fits, said
            assert (1 in found) == oracle.empty(left), said
            if not fits:
                break
            # long tokens, which cross several parts, as often as short ones
            size = draw.choice(sorted({len(tokens[i]) for i in fits}))
            token = draw.choice(sorted(i for i in fits if len(tokens[i]) == size))
            call("gqac_constraint_push", state, token)
            left, said = oracle.after(left, tokens[token]), said + tokens[token]
        lib.gqac_constraint_state_free(state)


# ---- answers -------------------------------------------------------------------------------------------


def make_schema(draw, depth=0):
    """A schema whose texts are short."""
    leaves = [
        {"type": "boolean"}, {"type": "null"}, {"enum": ["red", "reddish", 7, None, [1, {"a": "é"}]]},
        {"type": "integer", "minimum": draw.randint(-50, 5), "maximum": draw.randint(6, 3000)},
        {"type": "number", "minimum": draw.randint(-3, 0), "exclusiveMaximum": draw.randint(1, 30)},
        {"const": draw.choice(["é", 3, {"x": []}])},
        {"type": "string", "minLength": draw.randint(0, 2), "maxLength": draw.randint(2, 8)},
        {"type": "string", "format": draw.choice("date time date-time duration uuid ipv4 ipv6 hostname "
                                                 "email".split())},
        {"type": ["integer", "null"], "exclusiveMaximum": 9},
        {"type": "string", "pattern": draw.choice([
            r"^[A-Z][a-z]{2,5}( [A-Z]\.)?$", r"^\d{3}-\w{1,2}\s?$", r"^(?:a|b\/\"){2}[^\d\s]$",
            r"^.[^aé-ë]\\\W$", r"^(x|yz+?)*\D\S$", r"^[\]\x41\n\u00e9-]{4}$"])}]
    if depth > 2 or draw.random() < 0.3:
        return draw.choice(leaves)
    kind = draw.randrange(4)
    if kind == 0:
        low = draw.randint(0, 2)
        return {"type": "array", "items": make_schema(draw, depth + 1), "minItems": low,
                "maxItems": low + draw.randint(0, 2)}
    if kind == 1 and draw.random() < 0.4:
        return {"oneOf": [{"type": "null"}, {"type": "object", "required": ["k"], "properties": {
            "k": {"const": "x"}, "v": make_schema(draw, depth + 1)}}, {
                "type": "object", "properties": {"v": make_schema(draw, depth + 1),
                                                 "k": {"enum": ["y", 2]}}}]}
    if kind == 1:
        return {"anyOf": [make_schema(draw, depth + 1) for _ in range(draw.randint(1, 3))]}
    names = draw.sample(["name", "na", "né", "a\"b", "c d", "e\\", "f"], draw.randint(0, 4))
    made = {"type": "object", "properties": {k: make_schema(draw, depth + 1) for k in names},
            "required": [k for k in names if draw.random() < 0.6]}
    if kind == 2 or not names:
        made["additionalProperties"] = False
    return made


def make_root(draw):
    """A schema, and now and then one that refers to itself."""
    if draw.random() < 0.15:
        return {"$defs": {"node": {"type": "object", "properties": {
            "value": make_schema(draw, 2), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
            "required": ["value", "next"]}}, "$ref": "#/$defs/node"}
    return make_schema(draw)


def test_answers_satisfy_their_schema(model):
    draw, ended = random.Random(11), 0
    schemas, seeds = (300, 3) if FULL else (16, 1)
    for number in range(schemas):
        schema = make_root(draw)
        checks = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for seed in range(seeds):
            said = model.generate("She wrote", json_schema=schema, seed=seed + number,
                                  max_new_tokens=400)
            if said.finish_reason == "length":
                continue
            ended += 1
            checks.validate(json.loads(said.text))
            if number % 8 == 0:
                same = model.generate("She wrote", json_schema=json.dumps(schema), seed=seed + number,
                                      max_new_tokens=400, speculate=5)
                assert (same.ids, same.text) == (said.ids, said.text)
    assert ended > 0.9 * schemas * seeds


def test_further_properties_are_not_those_of_the_schema(model):
    schema = {"properties": {"a": {"type": "null"}, "an": {"type": "null"}}, "required": ["a"],
              "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}}
    ended = 0
    for seed in range(8):
        said = model.generate("She wrote", json_schema=schema, seed=seed, max_new_tokens=300)
        if said.finish_reason != "length":
            jsonschema.validate(json.loads(said.text), schema)
            ended += 1
    assert ended >= 4, ended


def test_grammar_in_every_call(model):
    rules = 'root ::= " "? ("yes" | "no") [.!]'
    said = model.generate("Was it so?", grammar=rules)
    assert said.text.strip() in ("yes.", "no.", "yes!", "no!") and said.finish_reason == "stop"
    pieces = list(model.generate("Was it so?", grammar=rules, stream=True))
    assert [piece.id for piece in pieces] == said.ids
    with gqac.Scheduler(model) as scheduler:
        requests = [scheduler.submit("Was it so?", grammar=g, max_new_tokens=8) for g in (rules, None)]
        assert requests[0].result().ids == said.ids and len(requests[1].result().ids) == 8
    chat = model.chat([{"role": "user", "content": "Was it so?"}], json_schema={"enum": [1, 2]})
    assert chat.text in ("1", "2")


def test_what_is_refused(model):
    with pytest.raises(gqac.InputError, match="'x' is not defined"):
        model.generate("a", grammar="root ::= x")
    with pytest.raises(gqac.ModelError, match="keyword 'multipleOf'") as caught:
        model.generate("a", json_schema={"items": {"multipleOf": 2}})
    assert "#/items" in str(caught.value)
    with pytest.raises(gqac.UsageError, match="cannot be combined"):
        model.generate("a", json_schema={}, grammar="root ::= [a]")
