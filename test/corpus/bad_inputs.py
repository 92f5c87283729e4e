"""Invalid inputs: .npy files, tensors of a call, files of token ids.

A row changes one file of a valid call of test/models/llama (15 tokens after 9), or is a file of
ids.
"""

import struct
from dataclasses import dataclass
from typing import Callable

import numpy as np

VOCABULARY, POSITIONS = 258, 640


@dataclass
class InputRow:
    """One invalid call. make(inputs) returns the files that replace those of the call: bytes, an
    array, or None to remove a file. For kind "ids" it returns the text."""

    name: str
    kind: str  # npy, call or ids
    word: str
    make: Callable
    code: int = 4
    always: bool = False


ROWS = []


def row(name, kind, word, make, **more):
    """Add a row."""
    ROWS.append(InputRow(name, kind, word, make, **more))


# ---- .npy files ----------------------------------------------------------------------------------

DICT = "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 15), }"


def npy(text, data=None, version=1, length=None, begin=b"\x93NUMPY"):
    """input_ids with this header; data: the bytes after it; None: the ids."""
    def make(inputs):
        head = text if isinstance(text, bytes) else text.encode()
        head += b" " * (-(10 + len(head) + 1) % 64) + b"\n"
        size = len(head) if length is None else length
        size = struct.pack("<H" if version == 1 else "<I", size)
        ids = inputs["input_ids"].tobytes()
        return {"input_ids": begin + bytes([version, 0]) + size + head
                + (ids if data is None else data)}
    return make


def shape(text, data=None):
    """The same with other text for the shape."""
    return npy(DICT.replace("(1, 15)", text), data)


def whole(data):
    """input_ids whose file has these bytes."""
    return lambda inputs: {"input_ids": data}


PARSE, LENGTH, MAGIC = "header is not a dict", "does not fit its shape", "magic of NumPy"
for label, word, make in (
        ("empty", MAGIC, whole(b"")), ("one byte", MAGIC, whole(b"\x93")), ("a magic alone", MAGIC, whole(b"\x93NUMPY")),
        ("nine bytes", MAGIC, whole(b"\x93NUMPY\1\0v")), ("an archive", ".npz file: unpack it", whole(b"PK\3\4" + bytes(60))),
        ("another magic", MAGIC, npy(DICT, begin=b"\x93NUMPX")), ("text", MAGIC, whole(b"1 2 3\n" * 9)),
        ("version 0", "version", npy(DICT, version=0)), ("version 4", "version", npy(DICT, version=4)),
        ("version 255", "version", npy(DICT, version=255)),
        ("header beyond the end", "longer", npy(DICT, length=65535)),
        ("header of 2^32 - 1 bytes", "longer", npy(DICT, version=2, length=2**32 - 1)),
        ("header of no bytes", PARSE, npy(DICT, length=0)), ("header one byte short", PARSE, npy(DICT, length=50)),
        ("header with a NUL", PARSE, npy(DICT.replace(" ", "\0", 1))), ("header of words", PARSE, npy("hello")),
        ("header that is a list", PARSE, npy("[1]")), ("header with junk", PARSE, npy(DICT + "x")),
        ("header that calls", PARSE, npy(DICT.replace("False", "__import__('os').abort()"))),
        ("60 000 braces", PARSE, npy("{" * 60000, version=2)), ("header not ASCII", PARSE, npy(b"\xff" * 40)),
        ("a key twice", PARSE, npy(DICT.replace("'descr'", "'shape': (1, 15), 'descr'"))),
        ("a key more", PARSE, npy(DICT.replace("'descr'", "'a': 1, 'descr'"))),
        ("no shape", PARSE, npy("{'descr': '<i8', 'fortran_order': False, }")),
        ("no type", PARSE, npy("{'fortran_order': False, 'shape': (1, 15), }")),
        ("order 1", PARSE, npy(DICT.replace("False", "1"))), ("order None", PARSE, npy(DICT.replace("False", "None"))),
        ("a struct", PARSE, npy(DICT.replace("'<i8'", "[('a', '<i8')]"))),
        ("a type of 500 letters", PARSE, npy(DICT.replace("<i8", "<" + "i" * 500))),
        ("big-endian", "'>i8'", npy(DICT.replace("<i8", ">i8"))), ("objects", "'|O'", npy(DICT.replace("<i8", "|O"))),
        ("texts", "'<U2'", npy(DICT.replace("<i8", "<U2"))), ("dates", "'<M8'", npy(DICT.replace("<i8", "<M8"))),
        ("complex numbers", "'<c8'", npy(DICT.replace("<i8", "<c8"))),
        ("a length of -1", PARSE, shape("(-1, 15)")), ("a length of 2^63", PARSE, shape("(9223372036854775808, 15)")),
        ("no tuple", PARSE, shape("(15)")), ("a list", PARSE, shape("[1, 15]")), ("a comma alone", PARSE, shape("(,)")),
        ("two commas", PARSE, shape("(1,,15)")), ("no comma", PARSE, shape("(1 15)")), ("Python 2", PARSE, shape("(1L, 15L)")),
        ("a leading zero", PARSE, shape("(01, 15)")), ("a sign", PARSE, shape("(+1, 15)")), ("rank 9", PARSE, shape("(1, 1, 1, 1, 1, 1, 1, 1, 15)")),
        ("rank 1000", PARSE, shape("(" + "1, " * 1000 + ")")),
        ("a product that wraps", "too large", shape("(4294967296, 4294967296)", b"")),
        ("2^62 times 0", "too large", shape("(4611686018427387904, 0)", b"")),
        ("no data", LENGTH, npy(DICT, b"")), ("a byte less", LENGTH, npy(DICT, bytes(119))),
        ("a byte more", LENGTH, npy(DICT, bytes(121)))):
    row(label, "npy", word, make, always=label in ("no tuple", "a leading zero"))
for label, make in (("version 2", npy(DICT, version=2)), ("version 3", npy(DICT, version=3)),
                    ("Fortran order", npy(DICT.replace("False", "True"))),
                    ("no last comma", npy(DICT.replace(", }", "}"))),
                    ("other quotes", npy(DICT.replace("'", '"')))):
    row(label, "npy", "", make, code=0)

# ---- tensors of a call ---------------------------------------------------------------------------


def change(name, how):
    """A call with one input changed."""
    return lambda inputs: {name: how(inputs[name])}


def one_id(value, at=0):
    """A call with one id replaced."""
    def make(inputs):
        ids = inputs["input_ids"].copy()
        ids[0, at] = value
        return {"input_ids": ids}
    return make


KEY, LAST = "past_key_values.0.key", "past_key_values.1.value"
for value in (-1, -2**63, -2**31 - 1):
    for at in (0, 14):
        row(f"id {value} at {at}", "call", "token id", one_id(value, at))
for value in (VOCABULARY, 2**31, 2**32, 2**62, 2**63 - 1):
    for at in (0, 14):
        row(f"id {value} at {at}", "call", "out of range", one_id(value, at))
row("the largest id", "call", "", one_id(VOCABULARY - 1), code=0)
for label, word, make in (
        ("mask one shorter", "total_sequence_length", change("attention_mask", lambda m: m[:, :-1])),
        ("mask one longer", "total_sequence_length", change("attention_mask", lambda m: np.ones((1, 25), m.dtype))),
        ("mask of no columns", "", change("attention_mask", lambda m: m[:, :0])),
        ("mask of zeros", "seqlens_k", change("attention_mask", lambda m: m * 0)),
        ("mask of twos", "seqlens_k", change("attention_mask", lambda m: m * 2)),
        ("mask of -1", "seqlens_k", change("attention_mask", lambda m: -m)),
        ("mask of 2^40", "seqlens_k", change("attention_mask", lambda m: m << 40)),
        ("mask of 2^62", "seqlens_k", change("attention_mask", lambda m: m << 62)),
        ("mask of two rows", "batch_size", change("attention_mask", lambda m: np.repeat(m, 2, 0))),
        ("keys one row shorter", "past_sequence_length", change(KEY, lambda k: k[:, :, :-1])),
        ("keys one row longer", "past_sequence_length", change(KEY, lambda k: np.concatenate([k, k[:, :, :1]], 2))),
        ("no keys", "past_sequence_length", change(KEY, lambda k: k[:, :, :0])),
        ("one head", "dimension 1", change(KEY, lambda k: k[:, :1])),
        ("no heads", "dimension 1", change(KEY, lambda k: k[:, :0])),
        ("a smaller head", "kv_cache_dim", change(KEY, lambda k: k[..., :-1])),
        ("two rows of keys", "batch_size", change(KEY, lambda k: np.repeat(k, 2, 0))),
        ("keys of rank 3", "rank", change(KEY, lambda k: k[0])), ("keys of rank 5", "rank", change(KEY, lambda k: k[None])),
        ("last values one row shorter", "past_sequence_length", change(LAST, lambda k: k[:, :, :-1])),
        ("no ids", "total_sequence_length", change("input_ids", lambda i: i[:, :0])),
        ("ids of two rows", "batch_size", change("input_ids", lambda i: np.repeat(i, 2, 0))),
        ("ids of no rows", "batch_size", change("input_ids", lambda i: i[:0])),
        ("ids of rank 1", "rank", change("input_ids", lambda i: i[0])),
        ("ids of rank 3", "rank", change("input_ids", lambda i: i[None])), ("a scalar", "rank", change("input_ids", lambda i: i[0, 0])),
        ("one id more", "total_sequence_length", change("input_ids", lambda i: np.concatenate([i, i[:, :1]], 1))),
        ("one id less", "total_sequence_length", change("input_ids", lambda i: i[:, 1:]))):
    row(label, "call", word, make)
for dtype in (np.int32, np.int8, np.uint8, np.uint64, np.float32, np.float64, np.float16, np.bool_):
    row(f"ids as {np.dtype(dtype).name}", "call", "expected i64", change("input_ids", lambda i, t=dtype: i.astype(t)))
for dtype in (np.float16, np.float64, np.int32, np.uint8):
    row(f"keys as {np.dtype(dtype).name}", "call", "expected f32", change(KEY, lambda k, t=dtype: k.astype(t)))
row("a file that is not there", "call", "past_key_values.1.value", lambda i: {LAST: None}, code=5)


def beyond(rows):
    """A past of that many rows."""
    def make(inputs):
        new = {n: np.zeros((1, 2, rows, 32), np.float32) for n in inputs if n.startswith("past")}
        return {**new, "attention_mask": np.ones((1, rows + 15), np.int64)}
    return make


row("a past beyond the tables", "call", "640 rows", beyond(POSITIONS))
row("a past up to their end, and one token more", "call", "640 rows", beyond(POSITIONS - 14))
row("a past up to their end", "call", "", beyond(POSITIONS - 15), code=0)
row("keys that are not numbers", "call", "", change(KEY, lambda k: k * np.nan), code=0)
row("no rows at all", "call", "", lambda i: {n: v[:0] for n, v in i.items()}, code=0)

# ---- files of ids --------------------------------------------------------------------------------

WORD, NONE = "not a token id", "no token ids"
for label, word, text in (
        ("empty", NONE, ""), ("spaces", NONE, " \n\t "), ("a fraction", WORD, "1 2.5"), ("an exponent", WORD, "1e2"),
        ("hexadecimal", WORD, "0x10"), ("a word", WORD, "1 two 3"), ("a sign", WORD, "+1"), ("commas", WORD, "1,2,3"),
        ("brackets", WORD, "[1 2 3]"), ("digits of another script", WORD, "1 ２"), ("a byte order mark", WORD, "\ufeff1 2"),
        ("a NUL", WORD, "1 \0 2"), ("an underscore", WORD, "1_000"), ("junk at the end", WORD, "1 2 x"),
        ("100 000 digits", WORD, "1" * 100000), ("2^63", WORD, "9223372036854775808"), ("2^64 + 1", WORD, "18446744073709551617"),
        ("-1", "token id -1", "1 -1"), ("the size of the vocabulary", "token id 258", "1 258"),
        ("2^31", "token id 2147483648", "2147483648"), ("2^63 - 1", "token id", "9223372036854775807"),
        ("-2^63", "token id", "-9223372036854775808"), ("one id too many", "640 rows", "1 " * 641),
        ("a million ids", "640 rows", "1 " * 1_000_000)):
    row(label, "ids", word, lambda t=text: t, always=label == "a million ids")
for label, text in (("lines of DOS", "1\r\n2\r\n"), ("minus zero", "-0 1"), ("leading zeros", "0001 2"), ("as many as fit", "1 " * 640)):
    row(label, "ids", "", lambda t=text: t, code=0)
