#!/usr/bin/env python3
"""The tokenizer compared with PyPI's `tokenizers`: the same ids, the same text, for the styles of
test/tokenizers, on deliberately awkward strings. Each string and each list of ids is a case.

    python test/python/test_tokenizer.py          prints `N passed, N failed`

GQAC_TEXT_TOOL names the program (test/text/tool_text.c); GQAC_TEST_FULL=1 uses ten times as many
strings.
"""

import functools
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer, normalizers, pre_tokenizers

import harness

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "test" / "tokenizers").glob("*/tokenizer.json"))
TOOL = os.environ.get("GQAC_TEXT_TOOL", str(ROOT / "build" / "release" / "test" / "tool_text"))
FULL = os.environ.get("GQAC_TEST_FULL") == "1"
SLOW = 10 if os.environ.get("GQAC_SANITIZED") == "1" else 1
STRINGS = 20_000 if FULL else 2_400  # of each style
MIXTURES = 400 if FULL else 40
SHOWN = 5  # differences printed for each style
BYTE_LEVEL = ("llama3", "o200k")  # whose decode(encode(x)) is x
WHOLE = 1 << 20

WORDS = ("the", "She'll", "it's", "I'D", "naïve", "Zug", "Straße", "word", "haus", "Über", "Поезд",
         "火车早上", "電車は朝", "기차는", "القطار", "הרכבת", "รถไฟ", "ट्रेन", "İstanbul", "ΣΑΣ", "ﬁne",
         "½", "²³", "Ⅷ", "١٢٣", "12", "3456789", "0x1F", "_a_b", "camelCase", "HTTPServer", "don’t",
         "ſ's", "'LL", "K", "th", "aether", "[UNK]", "<0x41>", "<unk>", "▁", "▁▁", "_", "…", "—")
EMOJI = ("😀", "👍🏽", "👨‍👩‍👧", "🇩🇪", "☝️", "1️⃣", "🏴‍☠️", "\u200d", "\ufe0f", "🌙")
MARKS = ("e\u0301", "é", "A\u030a", "Å", "Å", "q\u0323\u0307", "\u0307\u0323q", "각", "각",
         "ऩ", "ऩ", "\u0344", "שּׁ", "\u0301", "ế", "ế")
SPACES = (" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\u00a0", "\u2003", "\u3000",
          "\u2028", "\u0085", " \n", "\n ", "\u200b", "\ufeff", "    ")
CONTROL = tuple(chr(c) for c in (*range(32), 0x7f, 0x80, 0x9f, 0xad, 0xffff, 0x10ffff, 0xe000))
CODE = ("def f(x):\n    return x", "for (int i = 0; i < n; i++) {", "\t\tif (a) b();", "# ---", "//",
        "x += 1;", "{\"k\": [1, 2]}", "=>", "!=", "...", "</div>", "a[i][j]", "\\n", "\"\"\"", "/*", "$x",
        "@param", "100%", "C:\\dir\\", "https://example.org/a?b=c&d=1#e")


def pieces_of(tokenizer):
    """The contents of the added tokens, and texts similar to them."""
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    near = [w[:-1] for w in added] + [w[1:] for w in added] + [w.upper() for w in added]
    return added, [w for w in near if w]


def any_char(rng):
    """A random character; existing planes and blocks are more likely."""
    kind = rng.random()
    if kind < 0.4:
        return chr(rng.randrange(0x20, 0x250))
    if kind < 0.8:
        return chr(rng.randrange(0x250, 0x3100))
    while True:
        c = rng.randrange(0x3100, 0x110000 if kind < 0.9 else 0x20000)
        if not 0xd800 <= c < 0xe000:
            return chr(c)


def make_string(rng, added, near):
    """One awkward string."""
    kind = rng.randrange(9)
    n = rng.randrange(1, 14)
    if kind == 0:
        return "".join(any_char(rng) for _ in range(n))
    if kind == 1:
        return rng.choice((*WORDS, *SPACES, *EMOJI, "a", "ab", "0", "!", "é")) * rng.randrange(1, 90)
    if kind == 2:
        return "".join(rng.choice(SPACES) for _ in range(n)) + rng.choice(("", "a", "."))
    if kind == 3:
        return rng.choice(("\n", " ", "")).join(rng.choice(CODE) for _ in range(n))
    if kind == 4:
        return "".join(rng.choice((*added, *near, *SPACES, *WORDS)) for _ in range(n))
    if kind == 5:
        return "".join(rng.choice((*MARKS, *EMOJI, *WORDS)) for _ in range(n))
    if kind == 6:
        return "".join(rng.choice((*CONTROL, *WORDS, *SPACES)) for _ in range(n))
    if kind == 7:
        return " ".join(rng.choice(WORDS) for _ in range(n))
    every = (*WORDS, *EMOJI, *MARKS, *SPACES, *CONTROL, *CODE, *added, *near)
    return "".join(rng.choice(every) for _ in range(n))


def knows(char):
    """True if the reference, some of whose tables are older and some newer, orders this mark,
    removes it or splits off this punctuation as Unicode 14 does."""
    if (char in KEPT) == (unicodedata.category(char)[0] == "M"):
        return False
    if unicodedata.combining(char):
        text = f"a{char}\u0334"
        return normalizers.NFD().normalize_str(text) == unicodedata.normalize("NFD", text)
    if unicodedata.category(char)[0] == "P":
        return len(pre_tokenizers.Punctuation().pre_tokenize_str(f"a{char}b")) == 3
    return True


CHARACTERS = [chr(c) for c in (*range(0x80, 0xd800), *range(0xe000, 0x110000))]
KEPT = set(normalizers.StripAccents().normalize_str("".join(CHARACTERS)))
UNKNOWN = {c for c in CHARACTERS if not knows(c)}


def unassigned(text):
    """True if it has characters on which the Unicode versions of the two libraries may differ."""
    return any(c in UNKNOWN or unicodedata.category(c) == "Cn" and ord(c) not in (0xffff, 0x10ffff)
               for c in text)


def make_ids(rng, known, low):
    """Random ids; some lists have mostly the lowest ids, which include the byte tokens."""
    pool = rng.choice((known, low, known + low * 4))
    return [rng.choice(pool) for _ in range(rng.randrange(0, 20))]


# ---- the tool ------------------------------------------------------------------------------------

def run_tool(path, records, seconds=120, tool=TOOL):
    """Answers to [(kind, bytes)]: bytes of a text, a list of ids, or 'refused ...'."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        file.write_bytes(b"".join(kind.encode() + b"%d\n" % len(data) + data + b"\n"
                                  for kind, data in records))
        done = subprocess.run([tool, "tokens", str(path), str(file)], stdout=subprocess.PIPE,
                              timeout=seconds * SLOW, check=False)
    return parse_answers(done.stdout, [kind for kind, _ in records])


def parse_answers(out, kinds):
    """Splits the output of `tool_text tokens`."""
    answers, at = [], 0
    for kind in kinds:
        end = out.find(b"\n", at)
        if end < 0:
            break
        line = out[at:end]
        at = end + 1
        if line.startswith(b"refused"):
            answers.append(line.decode("utf-8", "replace"))
        elif kind in "ESN":
            answers.append([int(word) for word in line.split()])
        else:
            answers.append(out[at:at + int(line)])
            at += int(line) + 1
    return answers


def ids_record(kind, ids):
    """A record with ids."""
    return kind, " ".join(map(str, ids)).encode()


class Score:
    """Counts cases and prints the first differences of each kind."""

    def __init__(self):
        self.passed = self.failed = 0

    def compare(self, label, got, expected, sources):
        """got[i] == expected[i] for each i."""
        shown = 0
        if len(got) != len(expected):
            print(f"{label}: {len(got)} answers, {len(expected)} expected")
        for i, want in enumerate(expected):
            have = got[i] if i < len(got) else "no answer"
            if have == want:
                self.passed += 1
                continue
            self.failed += 1
            shown += 1
            if shown <= SHOWN:
                print(f"{label}: {sources[i]!r}\n  got      {have!r}\n  expected {want!r}")
        if shown > SHOWN:
            print(f"{label}: {shown - SHOWN} more")

    def check(self, ok, text):
        """Counts one case."""
        self.passed += bool(ok)
        self.failed += not ok
        if not ok:
            print(text)


# ---- cases ---------------------------------------------------------------------------------------

def check_strings(score, path, rng):
    """Ids with and without the post-processor, and texts back."""
    style, oracle = path.parent.name, Tokenizer.from_file(str(path))
    added, near = pieces_of(oracle)
    texts = [t for t in (make_string(rng, added, near) for _ in range(STRINGS))
             if not unassigned(t)] + ["", *added, *near, *WORDS, *SPACES, *CONTROL, *CODE]
    plain = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
    whole = [e.ids for e in oracle.encode_batch(texts[:200], add_special_tokens=True)]
    records = [("E", t.encode()) for t in texts] + [("S", t.encode()) for t in texts[:200]]
    answers = run_tool(path, records)
    score.compare(f"{style} encode", answers[:len(texts)], plain, texts)
    score.compare(f"{style} post-processor", answers[len(texts):], whole, texts)
    oracle.encode_special_tokens = True
    plain_special = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
    oracle.encode_special_tokens = False
    answers = run_tool(path, [("N", t.encode()) for t in texts])
    score.compare(f"{style} special tokens as text", answers, plain_special, texts)
    score.check(style == "mixed" or plain_special != plain, f"{style}: texts with special tokens")
    if style in BYTE_LEVEL:
        joined = run_tool(path, [ids_record("B", ids) for ids in plain])
        score.compare(f"{style} bytes joined", joined, [t.encode() for t in texts], texts)
        back = run_tool(path, [ids_record("D", ids) for ids in plain])
        score.compare(f"{style} round trip", back, [t.encode() for t in texts], texts)
    return oracle


def check_ids(score, path, oracle, rng):
    """Random ids: text, text without special tokens, and streamed text."""
    style = path.parent.name
    known = sorted(oracle.get_vocab().values())
    low = [i for i in known if i < 300]
    lists = [[], *([i] for i in known), *(make_ids(rng, known, low) for _ in range(STRINGS))]
    for kind, skip in (("D", False), ("K", True), ("V", True)):
        expected = [t.encode() for t in oracle.decode_batch(lists, skip_special_tokens=skip)]
        answers = run_tool(path, [ids_record(kind, ids) for ids in lists])
        score.compare(f"{style} decode {kind}", answers, expected, lists)


def check_bytes(score, path, oracle):
    """For each id: its bytes are what it adds to a text after an earlier token; or one byte."""
    style = path.parent.name
    known = sorted(oracle.get_vocab().values())
    answers = run_tool(path, [ids_record("B", [i]) for i in known])
    first = oracle.encode("a", add_special_tokens=False).ids
    before = oracle.decode(first, skip_special_tokens=False)
    after = oracle.decode_batch([first + [i] for i in known], skip_special_tokens=False)
    for i, got, whole in zip(known, answers, after):
        name = oracle.id_to_token(i)
        expected = whole.removeprefix(before)
        if re.fullmatch("<0x[0-9A-F]{2}>", name):
            expected = bytes([int(name[3:5], 16)])
        else:
            got = got.decode("utf-8", "replace")
        score.compare(f"{style} bytes of {name!r}", [got], [expected], [i])
    score.compare(f"{style} no id", run_tool(path, [ids_record("B", [1 << 20])]),
                  ["refused OUT_OF_RANGE the tokenizer has no token with id 1048576"], [1 << 20])


# Random combinations of steps; the oracle reads the same file. It panics if a Strip at the end gets
# a short token, so this case is tested in test/text/test_tokenizer.c.
SPLITS = [{"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": invert}
          for pattern in ({"String": "a"}, {"String": "--"}, {"Regex": "[0-9]+"},
                          {"Regex": "\\s+(?!\\S)|\\s"}, {"Regex": "x*"}, {"Regex": "\\p{Lu}"})
          for behaviour in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                            "Contiguous")
          for invert in (False, True)]
PRE_TOKENIZERS = SPLITS[::3] + SPLITS[1::7] + [
    {"type": "Digits", "individual_digits": False}, {"type": "Digits", "individual_digits": True},
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
    *({"type": "Punctuation", "behavior": b} for b in ("Removed", "Isolated", "Contiguous")),
    *({"type": "Metaspace", "replacement": "▁", "prepend_scheme": p, "split": s}
      for p in ("always", "never") for s in (False, True)),
    *({"type": "ByteLevel", "add_prefix_space": p, "trim_offsets": True, "use_regex": r}
      for p in (False, True) for r in (False, True))]
NORMALIZERS = [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "StripAccents"}, {"type": "Nmt"}, {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"String": "aa"}, "content": "a"},
    {"type": "Replace", "pattern": {"Regex": " {2,}|o"}, "content": "e"},
    {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "-"}]
DECODERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Replace", "pattern": {"String": "aab"}, "content": "é"},
    {"type": "Replace", "pattern": {"String": "e "}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "_"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0},
    {"type": "Strip", "content": "e", "start": 1, "stop": 0},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]


def sequence(rng, parts, member, most):
    """null, a step, or a Sequence of some."""
    chosen = [rng.choice(parts) for _ in range(rng.randrange(most + 1))]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return {"type": "Sequence", member: chosen}


@functools.cache
def table():
    """The normalizer of T5: a compiled table of characters."""
    path = ROOT / "test" / "tokenizers" / "t5" / "tokenizer.json"
    return json.loads(path.read_text())["normalizer"]["normalizers"][0]


def mixture(rng, base):
    """A tokenizer.json with random steps."""
    state = json.loads(base)
    state["normalizer"] = sequence(rng, (*NORMALIZERS, table()), "normalizers", 3)
    state["pre_tokenizer"] = sequence(rng, PRE_TOKENIZERS, "pretokenizers", 3)
    state["decoder"] = sequence(rng, DECODERS, "decoders", 4)
    if state["model"]["type"] == "BPE":
        state["model"]["fuse_unk"] = rng.random() < 0.5
        state["model"]["ignore_merges"] = rng.random() < 0.5
    if rng.random() < 0.25:
        del state["model"]["type"]  # the oracle uses the other members
    spared = rng.choice(("lstrip", "rstrip"))
    for token in state["added_tokens"]:
        token["normalized"] = False # the oracle panics if Strip removes all of one
        for flag in ("lstrip", "rstrip", "single_word"): # and if both strips apply to one white
                                                         # space
            token[flag] = flag != spared and rng.random() < 0.3
    return state


def check_mixtures(score, rng):
    """Combinations of steps that no model has."""
    bases = [f.read_text() for f in FILES if f.parent.name in (
        "gpt2", "gemma", "mistral", "t5", "albert", "mixed")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        for _ in range(MIXTURES):
            state = mixture(rng, rng.choice(bases))
            path.write_text(json.dumps(state))
            oracle = Tokenizer.from_file(str(path))
            added, near = pieces_of(oracle)
            texts = [t for t in (make_string(rng, added, near) for _ in range(40))
                     if not unassigned(t)]
            known = sorted(oracle.get_vocab().values())
            lists = [make_ids(rng, known, [i for i in known if i < 300]) for _ in range(40)]
            records = [("E", t.encode()) for t in texts]
            expected = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
            for ids in lists:
                for kind in "DKV":
                    records.append(ids_record(kind, ids))
                    expected.append(oracle.decode(ids, skip_special_tokens=kind != "D").encode())
            label = "mixture " + json.dumps({k: state[k] for k in (
                "normalizer", "pre_tokenizer", "decoder", "added_tokens")}, ensure_ascii=False)
            score.compare(label, run_tool(path, records), expected, records)


def check_refused(score, path):
    """Inputs that are not texts or ids."""
    bad = {b"\xff": 0, b"ab\xc3": 2, b"a\xc0\x80": 1, b"\xed\xa0\x80": 0, b"ok \xf4\x90\x80\x80": 3,
           "é".encode() + b"\x80": 2}
    answers = run_tool(path, [("E", b) for b in bad] +
                       [("D", b"99999999"), ("D", b"-1"), ("V", b"5 99999999"), ("E", b"ok")])
    for (text, offset), answer in zip(bad.items(), answers):
        score.check("INVALID_INPUT" in answer and answer.endswith(f"offset {offset}"),
                    f"{path.parent.name}: {text!r} gives {answer}")
    for answer in answers[len(bad):-1]:
        score.check("OUT_OF_RANGE" in answer, f"{path.parent.name}: {answer}")
    score.check(isinstance(answers[-1], list), "a good text after bad ones")


def seconds_for(path, text):
    """The CPU time of the tool for one text, and its ids."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = run_tool(path, [("E", text)])[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, answer


def check_linear(score, path):
    """One character, 256 Ki and 1 Mi times: at most about four times as long."""
    oracle = Tokenizer.from_file(str(path))
    for unit in ("a", " ", "é", "\n", "<"):
        small, _ = seconds_for(path, (unit * (WHOLE // 4)).encode())
        large, ids = seconds_for(path, (unit * WHOLE).encode())
        score.check(large < 10 * SLOW and large < 12 * small + 2 * SLOW,
                    f"{path.parent.name}: {unit!r} takes {small:.2f} s, then {large:.2f} s")
        if unit == "a":
            expected = oracle.encode(unit * 20_000, add_special_tokens=False).ids
            some = run_tool(path, [("E", (unit * 20_000).encode())])[0]
            score.check(some == expected, f"{path.parent.name}: 20,000 times {unit!r}")
        score.check(bool(ids) == bool(oracle.encode(unit * 9, add_special_tokens=False).ids),
                    f"{path.parent.name}: {unit!r} gives {len(ids)} ids")


def check_speed(score):
    """Ordinary text, and a large vocabulary, in reasonable time."""
    path = ROOT / "test" / "tokenizers" / "llama3" / "tokenizer.json"
    text = ("The model keeps 128 rows of every token, and it's fast: for (i = 0; i < n; i++)\n"
            * 26_000).encode()
    taken, _ = seconds_for(path, text)
    print(f"encode: {len(text) / taken / 1e6:.1f} MB/s of processor time, start and printing included")
    score.check(taken < 8 * SLOW, f"{len(text)} bytes take {taken:.1f} s")
    state = json.loads(path.read_text())
    state["model"]["vocab"], state["model"]["merges"] = big_vocabulary(128_000)
    state["added_tokens"], state["post_processor"] = [], None
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "tokenizer.json"
        big.write_text(json.dumps(state, ensure_ascii=False))
        taken, ids = seconds_for(big, b"abcabc")
        print(f"create: {big.stat().st_size / 1e6:.1f} MB of JSON in {taken:.2f} s")
        score.check(taken < 4 * SLOW, f"a vocabulary of 128,000 takes {taken:.1f} s")
        score.check(ids == Tokenizer.from_file(str(big)).encode("abcabc").ids, "its ids")


def check_ties(score):
    """Pairs of equal rank: the leftmost is merged first, in short words and in long ones, which
    have a different loop; a program that merges the rightmost must differ."""
    pieces = ["l", "ll", "lll", "llll", "s", "ss", "a", "b", "ab", "aba", "ba"]
    merges = [["l", "l"], ["ll", "l"], ["ll", "ll"], ["s", "s"], ["a", "b"], ["ab", "a"],
              ["b", "a"]]
    state = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
             "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                       "continuing_subword_prefix": None, "end_of_word_suffix": None,
                       "byte_fallback": False, "ignore_merges": False,
                       "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges}}
    texts = [unit * n + end for unit in ("l", "s", "ab", "ba", "aba", "lls")
             for n in (*range(1, 10), 24, 47, 48, 49, 61, 97, 301) for end in ("", "l", "a")]
    broken = harness.CONTROLS / "BPE_TIES.test"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(state))
        expected = [e.ids for e in Tokenizer.from_file(str(path)).encode_batch(texts)]
        records = [("E", t.encode()) for t in texts]
        score.compare("ties", run_tool(path, records), expected, texts)
        answers = run_tool(path, records, tool=broken)
        for text in ("lll", "s" * 61):
            at = texts.index(text)
            score.check(answers[at] != expected[at], f"ties of {text!r} are not seen")


def big_vocabulary(n):
    """n tokens and their merges, each of an earlier token and a letter."""
    letters = [chr(c) for c in range(0x61, 0x7b)]
    vocab, merges, front = {c: i for i, c in enumerate(letters)}, [], list(letters)
    while len(vocab) < n:
        grown = []
        for word in front:
            for c in letters:
                if len(vocab) < n and len(word) < 60:
                    vocab[word + c] = len(vocab)
                    merges.append([word, c])
                    grown.append(word + c)
        front = grown
    return vocab, merges


def main():
    """Every style, then times."""
    if not Path(TOOL).exists():
        print(f"no {TOOL}: build tool_text, or set GQAC_TEXT_TOOL")
        print("0 passed, 1 failed")
        return 1
    score, rng = Score(), random.Random(20261121)
    chosen = [f for f in FILES if not sys.argv[1:] or f.parent.name in sys.argv[1:]]
    score.check(len(chosen) >= 11 or sys.argv[1:], "test/tokenizers is not complete")
    for path in chosen:
        oracle = check_strings(score, path, rng)
        check_ids(score, path, oracle, rng)
        check_bytes(score, path, oracle)
        check_refused(score, path)
        check_linear(score, path)
    check_ties(score)
    check_mixtures(score, rng)
    check_speed(score)
    print(f"{score.passed} passed, {score.failed} failed")
    return 1 if score.failed else 0


if __name__ == "__main__":
    sys.exit(main())
