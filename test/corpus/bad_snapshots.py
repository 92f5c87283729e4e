"""Snapshot files that are invalid although all their checksums are correct, and valid ones.

A row makes a file from the bytes of a valid one: 70 tokens of models/tiny-gqa or of the model that
the row names. `alone`: the file is also refused without a model, by `gqac cache`.
"""

from dataclasses import dataclass
from typing import Callable

import sealed
from sealed import HEAD, part, with_fields, with_item, with_part

WINDOWED, RECURRENT = "gemma2", "qwen3.5"


@dataclass
class SnapshotRow:
    """One snapshot; code 0: it can be used."""

    name: str
    kind: str
    word: str
    make: Callable
    model: str = "llama"
    alone: bool = False
    code: int = 4
    always: bool = False


ROWS = []


def row(name, kind, word, make, **more):
    """Add a row."""
    ROWS.append(SnapshotRow(name, kind, word, make, **more))


def fields(**values):
    """Replaces numbers in the header."""
    return lambda data: with_fields(data, **values)


def place(name, **added):
    """Moves or resizes a section."""
    return lambda data: with_part(data, name, **added)


def item(name, index, value):
    """Replaces a number in a list."""
    return lambda data: with_item(data, name, index, value)


def bytes_at(at, value, lists=True):
    """Replaces bytes in the header."""
    return lambda data: sealed.sealed(data[:at] + value + data[at + len(value):], lists)


BIG = (1 << 63) - 1

# ---- the form ------------------------------------------------------------------------------------

for label, word, make in (
        ("one byte", "short", lambda d: d[:1]),
        ("a header less a byte", "short", lambda d: d[:HEAD - 1]),
        ("a header alone", "length", lambda d: d[:HEAD]),
        ("one byte less", "length", lambda d: d[:-1]), ("one byte more", "length", lambda d: d + b"\0"),
        ("twice", "length", lambda d: d + d), ("other first bytes", "first bytes", bytes_at(0, b"GQACSEX")),
        ("an image", "first bytes", bytes_at(0, b"GQACIMG\0")),
        ("version 3", "version", fields(version=3)), ("version 5", "version", fields(version=5)),
        ("the other byte order", "byte order", fields(order=0x04030201)),
        ("a length of 0", "length", fields(bytes=0)), ("a length of 2^64 - 1", "length", fields(bytes=2**64 - 1)),
        ("checksum of the header", "checksum of the header", lambda d: d[:480] + bytes(32) + d[512:]),
        ("checksum of the ids", "checksum of the ids",
         lambda d: sealed.sealed(d[:part(d, "ids")[0]] + b"\7" + d[part(d, "ids")[0] + 1:], False)),
        ("checksum of the rows", "checksum of the rows",
         lambda d: sealed.sealed(d[:part(d, "rows")[0]] + b"\7" + d[part(d, "rows")[0] + 1:], False)),
        ("a profile without an end", "lengths", bytes_at(136, b"p" * 96)),
        ("a kind without an end", "lengths", bytes_at(120, b"k" * 16))):
    row(label, "form", word, make, alone=True)
for name in sealed.LISTS:
    for added in ({"offset": 64}, {"offset": -64}, {"offset": 1}, {"offset": 1 << 63}, {"length": 64},
                  {"length": -64}, {"length": 1}, {"length": (1 << 64) - 128}):
        label = " ".join(f"{k} {v:+}" for k, v in added.items())
        row(f"{name} {label}", "places", "", place(name, **added), alone=True)

# ---- numbers of the header -----------------------------------------------------------------------

for field, values in (("tokens", (-1, -BIG - 1, BIG, 1 << 31, 1 << 40)),
                      ("missing", (-1, -BIG - 1, BIG, 1 << 31)), ("given", (-1, 72, BIG, -BIG - 1)),
                      ("states", (-1, BIG, 1 << 31, 9999)), ("slots", (-1, -BIG - 1))):
    for value in values:
        row(f"{value} {field}", "numbers", "", fields(**{field: value}), alone=True)
for field, values in (("tokens", (0, 1, 69, 70, 72, 128)), ("missing", (1, 64)), ("given", (1, 71 - 1)),
                      ("states", (1, 2)), ("slots", (0, 1, 3, 5, BIG)), ("kept", (1, 64, -1, BIG)),
                      ("pinned", (-1, -BIG - 1)), ("final", (-1, -BIG - 1))):
    for value in values:
        alone = (field, value) in (("tokens", 128), ("missing", 64)) or field == "states"
        row(f"{value} {field}, of this model", "numbers", "", fields(**{field: value}), alone=alone)
for values in ({"tokens": 0, "missing": 71}, {"tokens": 70, "missing": 1}, {"given": 71, "missing": 71},
               {"tokens": 1 << 30, "given": 1 << 30}):
    row(str(values), "numbers", "", fields(**values))
for values in ({"guards": 0}, {"guards": 2**64 - 1}):
    row(str(values), "numbers", "", fields(**values), code=0)

# ---- lists ---------------------------------------------------------------------------------------

for value in (-1, 258, 1 << 31, 1 << 40, BIG, -BIG - 1):
    for at in (0, 69):
        row(f"id {value} at {at}", "lists", "vocabulary", item("ids", at, value))
row("another id", "lists", "", item("ids", 70, 257), code=0)
for index, label in enumerate(("heads", "head size", "type", "rows", "tail")):
    for value in (0 if index < 3 else 1, -1, BIG):
        row(f"{label} {value}", "lists", "slots", item("geometry", index, value))
row("the last slot has one head", "lists", "slots", item("geometry", 15, 1))
for value in (-1, 0, 1, 63, 65, 72, BIG, -BIG - 1):
    for at in (0, 1):
        row(f"state {at} at {value}", "states", "position", item("positions", at, value), model=RECURRENT)
for values in ({"states": 0}, {"states": 1}, {"states": 3}, {"given": 1}, {"tokens": 64}):
    row(f"recurrent: {values}", "states", "", fields(**values), model=RECURRENT)
for value in (1, 63, 64, 70, 71, 72, 1 << 40, -1):
    row(f"kept from {value}", "windows", "", fields(kept=value), model=WINDOWED)
for name in (b"", b"nothing", b"paged\0\xff", b"CONTIGUOUS", b"\xff\xfe"):
    row(f"kind {name!r}", "kinds", "", bytes_at(120, name.ljust(16, b"\0")))
row("kind quantised", "kinds", "", bytes_at(120, b"quantised".ljust(16, b"\0")))
row("kind paged", "kinds", "cannot continue", bytes_at(120, b"paged".ljust(16, b"\0")))
row("another model", "model", "another model", bytes_at(24, bytes(32)), code=2)
row("another profile", "model", "profile", lambda d: sealed.sealed(d[:24] + bytes(32) + d[56:136] + b"gqac-n9".ljust(96, b"\0") + d[232:]), code=2)


def longer(tokens):
    """A file with more tokens than the model has positions; its rows are a hole in the file."""
    def make(data):
        lists, rows = -(-8 * tokens // 64) * 64, 4 * (-(-256 * tokens // 64) * 64)
        at = part(data, "ids")[0]
        data = bytearray(data[:at])
        for i, (offset, length) in enumerate(((at, lists), (at + lists, rows), (at + lists + rows, 0))):
            data[PARTS + PART * (2 + i):PARTS + PART * (2 + i) + 16] = \
                offset.to_bytes(8, "little") + length.to_bytes(8, "little")
        data[16:24] = (at + lists + rows).to_bytes(8, "little")
        data[56:64] = tokens.to_bytes(8, "little")
        return sealed.sealed(bytes(data)) + bytes(0), at + lists + rows
    return make


PARTS, PART = sealed.PARTS, sealed.PART
row("641 tokens, and the model has 640 positions", "holes", "641 tokens", longer(641), always=True)
row("4 million tokens in a file of holes", "holes", "4000000 tokens", longer(4_000_000), always=True)
