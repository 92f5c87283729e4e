"""Artefacts that are invalid although all their checksums are correct, and valid ones that are
nearly so.

A row makes a file from the sections of a valid artefact, [(name, content)].
"""

import struct
from dataclasses import dataclass
from typing import Callable

from sealed import artefact

META, GRAPH, TENSORS, WEIGHTS = range(4)


@dataclass
class ArtefactRow:
    """One artefact; with code 0 it is valid."""

    name: str
    kind: str
    word: str
    make: Callable
    code: int = 3
    always: bool = False  # in every run of the tests


ROWS = []


def row(name, kind, word, make, **more):
    """Add a row."""
    ROWS.append(ArtefactRow(name, kind, word, make, **more))


def replaced(index, change):
    """The artefact with one section changed."""
    def make(sections):
        name, content = sections[index]
        changed = change(content)
        assert changed != content, name
        return artefact([*sections[:index], (name, changed), *sections[index + 1:]])
    return make


def files(*given, plain=True, **more):
    """The artefact with these attached files."""
    def make(sections):
        prefix = b"file:" if plain else b""
        return artefact([*sections[:4], *((prefix + n, c) for n, c in given)], **more)
    return make


def of(change, **more):
    """The artefact with its sections changed."""
    return lambda sections: artefact(change(sections), **more)


# ---- header and table ----------------------------------------------------------------------------

SAME = list
for name, word, make in (
        ("no sections", "number of sections", of(lambda s: [])),
        ("three sections", "number of sections", of(lambda s: s[:3])),
        ("2^32 - 1 sections", "number of sections", of(SAME, count=2**32 - 1)),
        ("one section more than its table", "checksum of its header", of(SAME, count=8)),
        ("65 files", "at most 64", files(*((b"f%d" % i, b"") for i in range(65)))),
        ("version 4", "version", of(SAME, version=4)),
        ("version 7", "version", of(SAME, version=7)),
        ("version 0", "version", of(SAME, version=0)),
        ("the other byte order", "byte order", of(SAME, order=0x04030201)),
        ("another magic", "", of(SAME, magic=b"GQACARU\0")),
        ("longer than it says", "length", of(SAME, longer=-1)),
        ("shorter than it says", "length", of(SAME, longer=1)),
        ("last section one line later", "section table", of(SAME, shift=64)),
        ("last section at 2^64 - 64", "section table", of(SAME, shift=-64)),
        ("fields that are not zero", "section table", of(SAME, zero=1)),
        ("graph before meta", "section table", of(lambda s: [s[1], s[0], *s[2:]])),
        ("weights twice", "section table", of(lambda s: [*s[:4], s[3]])),
        ("meta twice", "section table", of(lambda s: [s[0], *s])),
        ("section without a name", "section table", of(lambda s: [*s[:4], (b"", b"x")])),
        ("section of another kind", "section table", files((b"other", b"x"), plain=False)),
        ("file without the prefix", "section table", files((b"genai_config.json", b"{}"), plain=False)),
        ("name of 128 bytes", "section table", files((b"n" * 123, b"x"))),
        ("name with bytes after its end", "section table", files((b"a\0b", b"x"))),
        ("junk after the end", "length", lambda s: artefact(s) + b"\0"),
        ("baked prefix in version 5", "section table", of(lambda s: [*s, (b"baked", b"x")])),
        ("version 6 without a baked prefix", "section table", of(SAME, version=6)),
        ("baked prefix before the files", "section table",
         of(lambda s: [*s[:4], (b"baked", b"x"), *s[4:]], version=6)),
        ("two baked prefixes", "section table",
         of(lambda s: [*s, (b"baked", b"x"), (b"baked", b"x")], version=6))):
    row(name, "table", word, make)
row("64 files", "table", "", files(*((b"f%d" % i, b"") for i in range(64))), code=0)

# ---- names of files ------------------------------------------------------------------------------

for text in (b"..", b".", b"", b"a/b", b"/etc/passwd", b"a\\b", b"a\x1bb", b"a\nb", b"a\x7fb",
             b"\xff", b"\xed\xa0\x80", b"n" * 101):
    row(f"file {text[:12]!r} of {len(text)}", "files", "attached file", files((text, b"x")))
row("two files of one name", "files", "two attached files", files((b"a", b"x"), (b"a", b"y")))
for text in ("…".encode(), b"...", b"n" * 100, b"a b", b"file:a"):
    row(f"file {text[:12]!r} of {len(text)}", "files", "", files((text, b"x")), code=0)

# ---- meta ----------------------------------------------------------------------------------------


def meta(key, value):
    """The artefact with one value of `meta` changed."""
    def change(content):
        lines = content.split(b"\n")
        at = next(i for i, line in enumerate(lines) if line.startswith(key + b" "))
        lines[at] = key + b" " + value
        return b"\n".join(lines)
    return replaced(META, change)


for key, values in ((b"target", (b"", b"CPU", b"cpu ", b"cuda", b"\xff", b"c%s%n")),
                    (b"math", (b"", b"MODEL", b"model\r", b"fast", b"x" * 5000)),
                    (b"seqlens-k", (b"", b"total", b"total-2")),
                    (b"legacy-window", (b"", b"2", b"yes", b"00")),
                    (b"per-row-quant", (b"-1", b"true")),
                    (b"disable", (b"nothing", b",", b"raise,,fold", b"raise, fold", b"rais")),
                    (b"digest", (b"", b"0" * 63, b"0" * 65, b"G" * 64, b"A" * 64)),
                    (b"parameters", (b"", b"-5", b"many", b"9" * 40, b"1.5", b" 1"))):
    for i, value in enumerate(values):
        row(f"{key.decode()} is {value[:12]!r} of {len(value)}", "meta", key.decode(), meta(key, value),
            always=i == 0)
for value in (b"", b"gqac-n9/cpu/model/k1", b"\xff"):
    row(f"profile is {value!r}", "meta", "profile", meta(b"profile", value))
for label, change in (("is empty", lambda m: b""), ("without a last line", lambda m: m[:-1]),
                      ("with a NUL", lambda m: m.replace(b"cpu", b"c\0u", 1)),
                      ("with one line more", lambda m: m + b"more x\n"),
                      ("in another order", lambda m: b"\n".join(reversed(m.split(b"\n")))),
                      ("of one line", lambda m: m.replace(b"\n", b" "))):
    row(f"meta {label}", "meta", "meta", replaced(META, change))
for key, value in ((b"source", b""), (b"source", b"\xff\x1b[31m"), (b"source", b"x" * 99999),
                   (b"parameters", b"0"), (b"disable", b"raise,raise"), (b"digest", b"0" * 64)):
    row(f"{key.decode()} is {value[:12]!r} of {len(value)}", "meta", "", meta(key, value), code=0)

# ---- graph ---------------------------------------------------------------------------------------

for label, word, change in (
        ("is empty", "graph", lambda g: b""), ("twice", "goes on", lambda g: g + g),
        ("with junk after it", "goes on", lambda g: g + b"x"),
        ("cut in the middle", "graph", lambda g: g[:len(g) // 2]),
        ("with a NUL", "graph", lambda g: g.replace(b" ", b"\0", 1)),
        ("of other bytes", "byte 0x", lambda g: bytes(range(128, 256)) * 9),
        ("with an op of nobody", "Frobnicate", lambda g: g.replace(b" = Gather ", b" = Frobnicate ", 1)),
        ("with a value of nobody", "ghost", lambda g: g.replace(b"Gather %model", b"Gather %ghost", 1)),
        ("with a digest of 15 digits", "", lambda g: g.replace(b"= sha256 ", b"= sha256 0", 1)),
        ("with a digest that is no number", "", lambda g: g.replace(b"= sha256 ", b"= sha256 x", 1)),
        ("with a type of nobody", "f31", lambda g: g.replace(b": f32[", b": f31[", 1)),
        ("with a weight of rank 9", "", lambda g: g.replace(b"f32[258,96]", b"f32[258,96,1,1,1,1,1,1,1]", 1)),
        ("with a weight of 2^62 rows", "", lambda g: g.replace(b"f32[258,96]", b"f32[4611686018427387904,96]", 1)),
        ("with a weight of -1 rows", "", lambda g: g.replace(b"f32[258,96]", b"f32[-1,96]", 1)),
        ("with a weight one column wider", "place", lambda g: g.replace(b"f32[258,96]", b"f32[258,97]", 1)),
        ("with a packed weight of rank 2", "", lambda g: g.replace(b"f32[2,96,64]", b"f32[192,64]", 1)),
        ("with a packed weight of other panels", "", lambda g: g.replace(b"f32[5,96,64]", b"f32[96,5,64]", 1)),
        ("with a packed weight of integers", "", lambda g: g.replace(b"f32[5,96,64]", b"i32[5,96,64]", 1)),
        ("with heads that do not divide", "", lambda g: g.replace(b"kv_num_heads=2", b"kv_num_heads=5", 1)),
        ("with 2^40 heads", "", lambda g: g.replace(b"num_heads=6", b"num_heads=1099511627776", 1)),
        ("without heads", "", lambda g: g.replace(b"kv_num_heads=2", b"kv_num_heads=0", 1))):
    row(f"graph {label}", "graph", word, replaced(GRAPH, change))
for label, change in (("with lines of DOS", lambda g: g.replace(b"\n", b"\r\n")),
                      ("without a last line", lambda g: g.rstrip()),
                      ("with more spaces", lambda g: g.replace(b" = ", b"  =  "))):
    row(f"graph {label}", "graph", "", replaced(GRAPH, change), code=0)

# ---- tensors and weights -------------------------------------------------------------------------


def tensor(index, offset=0, size=0, at=None):
    """The artefact with one tensor moved or resized; at: its new offset."""
    def change(content):
        was = struct.unpack_from("<QQ", content, 16 * index)
        new = struct.pack("<QQ", ((was[0] if at is None else at) + offset) % (1 << 64),
                          (was[1] + size) % (1 << 64))
        return content[:16 * index] + new + content[16 * index + 16:]
    return replaced(TENSORS, change)


def overlapping(content):
    """All tensors at offset 0."""
    return b"".join(bytes(8) + content[i + 8:i + 16] for i in range(0, len(content), 16))


for label, word, make in (
        ("no tensors", "fewer tensors", replaced(TENSORS, lambda t: b"")),
        ("one tensor less", "fewer tensors", replaced(TENSORS, lambda t: t[:-16])),
        ("one tensor more", "more tensors", replaced(TENSORS, lambda t: t + t[-16:])),
        ("a byte less", "fewer tensors", replaced(TENSORS, lambda t: t[:-1])),
        ("a byte more", "more tensors", replaced(TENSORS, lambda t: t + b"\0")),
        ("all tensors at the start", "place", replaced(TENSORS, overlapping)),
        ("two tensors exchanged", "place", replaced(TENSORS, lambda t: t[16:32] + t[:16] + t[32:])),
        ("a tensor one line later", "place", tensor(3, offset=64)),
        ("a tensor one line before", "place", tensor(3, offset=-64)),
        ("a tensor one byte later", "place", tensor(3, offset=1)),
        ("a tensor of 4 bytes more", "place", tensor(3, size=4)),
        ("a tensor of no bytes", "place", tensor(3, at=0, size=0)),
        ("a tensor at 2^63", "place", tensor(0, at=1 << 63)),
        ("a tensor at 2^64 - 64", "place", tensor(0, at=(1 << 64) - 64)),
        ("no weights", "place", replaced(WEIGHTS, lambda w: b"")),
        ("weights one line shorter", "place", replaced(WEIGHTS, lambda w: w[:-64])),
        ("weights one line longer", "longer", replaced(WEIGHTS, lambda w: w + bytes(64)))):
    row(label, "weights", word, make, always=label.startswith(("all tensors", "weights one line l")))
row("weights that are not numbers", "weights", "", replaced(WEIGHTS, lambda w: b"\xff" * len(w)), code=0)

# ---- what is in the files ------------------------------------------------------------------------

CONFIG, TOKENIZER = b"genai_config.json", b"tokenizer.json"
for name, content, word in ((CONFIG, b"", "JSON"), (CONFIG, b"{", "JSON"), (CONFIG, b"[]", ""),
                            (CONFIG, b"\xff", ""), (TOKENIZER, b"", "JSON"),
                            (TOKENIZER, b"{}", "model"), (TOKENIZER, b"\0", ""),
                            (TOKENIZER, b"[" * 100000, "")):
    row(f"{name.decode()} is {content[:9]!r}", "text", word, files((name, content)))
row("no files at all", "text", "", files(), code=2)

# ---- baked prefixes ------------------------------------------------------------------------------

for label, content in (("empty", b""), ("one byte", b"x"), ("zeros", bytes(4096)),
                       ("the wrong magic", b"GQACSEQ\0" + bytes(4088)),
                       ("a magic alone", b"GQACIMG\0" + bytes(4088))):
    row(f"baked prefix: {label}", "baked", "baked prefix",
        of(lambda s, c=content: [*s, (b"baked", c)], version=6))
