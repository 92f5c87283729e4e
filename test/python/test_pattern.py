#!/usr/bin/env python3
"""Expressions of pre-tokenizers compared with the `tokenizers` package, which uses Oniguruma.

Both match every expression on many texts; the begin and the end of each match must be the same. So
must the general categories of all code points, except those that one of the two versions of Unicode
does not assign.
"""

import os
import random
import subprocess
import sys
import unicodedata
import unittest

import harness

try:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split
except ImportError:
    print("skipped: no tokenizers package; see tools/requirements-test.txt")
    print("0 passed, 0 failed")
    sys.exit(77)

TOOL = os.environ.get("GQAC_TEXT_TOOL", str(harness.GQAC.parent / "test" / "tool_text"))
LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# The expressions of model families, and every construct.
EXPRESSIONS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
              r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{LETTERS}*{SMALL}+{SUFFIX}?"
             rf"|[^\r\n\p{{L}}\p{{N}}]?{LETTERS}+{SMALL}*{SUFFIX}?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-v3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                   r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
                   r"|\s+(?!\S)|\s+",
    "deepseek-cjk": r"[一-龥぀-ゟ゠-ヿ]+",
    "deepseek-code": r"[\r\n]|\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿΑ-ΡΣ-ҁ]+|\s?[!-/:-~！-／：-～‘-‟　-。]+|\s+$",
    "digits": r"\p{N}{1,3}",
    "falcon": r"[0-9][0-9][0-9]",
    "starcoder": r"\d|'s| ?[\p{L}]+|\s",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
              r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "words": r"\w+|[^\w\s]+",
    "not words": r"\W+|\S+?",
    "edges": r"\b\w+?\b|\B.\B",
    "lines": r"^[^\n]*$|\n",
    "line ends": r"\s+$|^\s|(?<!\s)\s",
    "begin": r"\A.|.\z",
    "behind": r"(?<=\s)\p{L}+|(?<!\p{L})\p{N}+",
    "ahead": r"\p{L}+(?=\s)|\p{N}(?=\p{N}|$)|.(?=\s+)",
    "ahead not": r"[^\S\n]+(?![^\s]|\n)|\S(?!\p{M}?)|\S",
    "lazy": r"a+?b|b*?c|(?:ab)??a|.{2,4}?\n|[bc]{1,}?",
    "counts": r"a{2}?b|b{1,2}+a|a{,2}b|c{2,3}|(?:ab){2}{2}|{|}|a{|b{,}",
    "groups": r"(?<name>a|(b)(?#nothing)|(?:c(?i)A)|(?m:a.b))|(?:a|ab)(?:c|bcd)(?:d*)",
    "first": r"a|ab|abc|b?c?|",
    "empty": r"(?:a?|b)c|(?=b)|\s?",
    "letter case": r"(?i:k+|ſx?a|[x-zå]+|i|[^kK\s])",
    "case of classes": r"(?i:\p{Lu}+|[^\p{L}\s]+)|(?i:[^kſ\d]a)",
    "escapes": r"\x41|\x{1F600}|\u00e9|[\x{300}-\x{36f}]|\t|\r\n|\/|\-|[\]\[\\^\-]|\h{2}|\.",
    "within": r"[\p{L}&&[^a-f]]+|[^\s&&[\s\d]]|[a[bc]]",
    "negated": r"[^\p{^L}\P{N}a]|[^\d\W]+|\H",
    "atomic": r"(?>a+)b|(?>[bc])a|(?>\s?)\s|(?>)",
    "possessive": r"a?+a|b++b|b++c|[ab]*+c|\s++(?=\S)|\s",
    "names": r"\p{Uppercase_Letter}\p{lowercase letter}*|\p{Punctuation}+|\p{Z}|\p{LC}+",
}
REFUSED = {
    r"(a)\1": "back reference",
    r"a(?=bc)": "a lookahead of more than one character",
    r"(?<=ab)c": "a lookbehind of more than one character",
    r"(?>ab|a)b": "atomic group",
    r"(?:ab)++c": "possessive repeat",
    r"(?:a?b?)*": "may be empty",
    r"\p{Han}": "the property Han",
    r"[[:alpha:]]": "POSIX",
    r"(?x: a)": "an unsupported kind of group",
    r"\Ga": "an unsupported escape",
    r"(?i:stra\x{df}e)": "if case is ignored",
    r"(?i:ss)": "U+00DF",
    r"(?i:[^\p{Lu}\s])": "U+1E9E",
}
# All characters of Unicode 14 except most ideographs, syllables and private ones. tokenizers 0.23.3
# knows about 10300 newer ones; U+1171E was Mn and is now Mc.
ASSIGNED = [chr(c) for c in [*range(0xd800), *range(0xe000, 0x20100), *range(0xe0000, 0xe0200)]
            if unicodedata.category(chr(c)) != "Cn" and c != 0x1171e
            and not (0x3500 < c < 0x4d00 or 0x4f00 < c < 0x9e00 or 0xad00 < c < 0xd700
                     or 0xe100 < c < 0xf800 or 0x17000 < c < 0x18a00)]
PIECES = [
    "'s", "'S", "'ll", "'RE", "'ſ", "don't", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n ",
    "a", "b", "c", "ab", "abc", "aab", "kK", "K", "Å", "i", "x", "Z", "{", "}", "{,}", "A", "é", "ß",
    "e\u0301", "\u0301", "\u200d", "ﬁ", "ǅ", "ʰ", "ª", "1", "12", "123", "1234", "٣", "²", "Ⅷ", "½",
    "中", "文字", "ひらがな", "カタカナ", "한국", "日本。", "！", "、", "😀", "👩\u200d💻", "🏽", "Ⓐ",
    "\u00a0", "\u3000", "\u2003", "\u2028", "\u2029", "\u0085", "\u1680", "\u200b", "\u202f",
    "\ufeff", "\x00", "\x1c", "\x1f", "\x0b", "\x0c", "\x7f", "\u0378", "\U000e0001", "\ue000",
    "\U0010ffff", "_", "-", "/", ".", ",", "…", "[", "]", "\\", "^", "$", "€", "+", "\"", "#!",
    "Hello", " world", " HTTPServer", "camelCase", "नमस्ते", "สวัสดี", "שלום", "مرحبا", "Привет",
]


def pieces_of_peer(expression, text):
    """Byte ranges of the pieces of tokenizers."""
    regex = Regex(expression) if isinstance(expression, str) else expression
    found = Split(regex, "isolated").pre_tokenize_str(text)
    at, ranges = 0, []
    for piece, _ in found:
        n = len(piece.encode())
        ranges.append((at, at + n))
        at += n
    return ranges


def pieces_of_matches(line, length):
    """Byte ranges of matches and of the text between them; empty matches only divide."""
    cuts = {0, length}
    for word in line.split():
        cuts.update(map(int, word.split(":")))
    cuts = sorted(cuts)
    return list(zip(cuts, cuts[1:]))


def random_texts(count, seed):
    """Texts of up to 24 pieces; runs of one piece are likely."""
    rng = random.Random(seed)
    texts = ["", " " * 300, "\n" * 300, "a " * 200, "a" * 300, " " * 99 + "x", "\n " * 99 + "1"]
    for _ in range(count):
        few = rng.sample(PIECES, rng.choice([2, 3, 6, 20]))
        texts.append("".join(rng.choice(few) * rng.choice([1, 1, 1, 2, 5])
                             for _ in range(rng.randrange(1, 25))))
    return texts


def record(kind, text):
    """One record of the input of the tool."""
    data = text.encode()
    return kind + str(len(data)).encode() + b"\n" + data + b"\n"


class Writer:
    """Random expressions with every supported construct."""

    CLASSES = [r"\s", r"\S", r"\d", r"\w", r"\W", r"\p{L}", r"\p{Lu}", r"\P{L}", r"\p{N}", "[ab]",
               "[^ab]", r"[^\s\p{L}]", r"[a-c\n]", ".", r"[^\r\n]", "[a1 ]", r"[\p{L}&&[^b]]"]

    def __init__(self, rng):
        self.rng = rng

    def char(self):
        rng = self.rng
        return rng.choice(self.CLASSES) if rng.random() < 0.5 else rng.choice("aabbc1 '\n")

    def repeat(self, text, may_be_empty):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.5:
            return text, may_be_empty
        low = rng.randrange(3)
        if may_be_empty or kind < 0.7:
            text += rng.choice(["?", "??", "{0,2}", "{1,3}", "{2}", "{,2}", "{1,2}?", "{0,3}?"])
            return text, may_be_empty or "{1" not in text[-6:] and not text.endswith("{2}")
        return text + ["*", "+", f"{{{low},}}"][low % 3] + rng.choice(["", "", "?"]), True

    def atom(self, depth):
        rng, kind = self.rng, self.rng.random()
        if depth <= 0 or kind < 0.55:
            text = self.char()
            if rng.random() < 0.15:
                return text + rng.choice(["?+", "*+", "++"]), True
            return self.repeat(text, False)
        if kind < 0.65:
            look = rng.choice(["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)"]) % self.char()
            return look, True
        if kind < 0.72:
            return rng.choice(["^", "$", r"\b", r"\B", r"\A", r"\z"]), True
        text, empty = self.alternatives(depth - 1)
        group = rng.choice(["(?:%s)", "(%s)", "(?:%s)", "(?m:%s)"])
        return self.repeat(group % text, empty)

    def sequence(self, depth):
        parts = [self.atom(depth) for _ in range(self.rng.choice([1, 1, 2, 2, 3, 4]))]
        return "".join(t for t, _ in parts), all(e for _, e in parts)

    def alternatives(self, depth):
        parts = [self.sequence(depth) for _ in range(self.rng.choice([1, 2, 2, 3]))]
        return "|".join(t for t, _ in parts), any(e for _, e in parts)


class Patterns(harness.Case):
    """tool_text pattern compared with tokenizers."""

    def tool(self, data):
        path = self.dir / "records"
        path.write_bytes(data)
        done = subprocess.run([TOOL, "pattern", str(path)], capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode("utf-8", "replace")

    def compare(self, expression, texts):
        data = record(b"P", expression) + b"".join(record(b"T", t) for t in texts)
        out = self.tool(data)
        self.assertFalse(out.startswith("refused"), out[:300])
        lines = out.splitlines()
        self.assertEqual(len(lines), len(texts))
        for text, line in zip(texts, lines):
            ours = pieces_of_matches(line, len(text.encode()))
            self.assertEqual(ours, pieces_of_peer(expression, text), (expression, text))

    def test_refused(self):
        for expression, words in REFUSED.items():
            out = self.tool(record(b"P", expression))
            self.assertTrue(out.startswith("refused UNSUPPORTED"), (expression, out))
            self.assertIn(words, out)

    def test_categories(self):
        """Each category has a number; one expression for each bit of it, in brackets and not."""
        text = "".join(ASSIGNED)
        names = sorted({unicodedata.category(c) for c in ASSIGNED})
        self.assertGreater(len(names), 25)
        classes = ["".join(rf"\p{{{n}}}" for i, n in enumerate(names) if i >> bit & 1)
                   for bit in range(5)]
        for expression in [f"[{c}]+" for c in classes] + [r"\w+", r"[\w]+", r"\s+", r"[^\S]+",
                                                          r"\d+", r"\p{L}+", r"[\P{M}]+"]:
            self.compare(expression, [text])

    def test_normal_forms(self):
        """Every character alone and in mixtures, compared with Python."""
        if unicodedata.unidata_version != "14.0.0":
            self.skipTest(f"Python has Unicode {unicodedata.unidata_version}")
        rng = random.Random(3)
        some = [c for c in ASSIGNED if unicodedata.decomposition(c) or unicodedata.combining(c)]
        text = "\n".join(ASSIGNED) + "".join("".join(rng.choices(some, k=9)) + "\n"
                                             for _ in range(20000))
        (self.dir / "text").write_bytes(text.encode())
        for form in ("nfc", "nfd", "nfkc", "nfkd", "lower"):
            done = subprocess.run([TOOL, "normal", form, str(self.dir / "text")],
                                  capture_output=True, timeout=300)
            # tokenizers convert each character separately: no final sigma
            expected = ("".join(c.lower() for c in text) if form == "lower"
                        else unicodedata.normalize(form.upper(), text))
            self.assertTrue(done.stdout.decode() == expected, form)

    def test_random_expressions(self):
        """Random expressions of a grammar on short texts; a refusal must name its reason."""
        rng = random.Random(7)
        pieces = ["a", "b", "ab", "c", "1", " ", "\n", "é", "A", "'", "12", "  "]
        cases, refused, total = [], 0, 4000 if harness.FULL else 300
        for _ in range(total):
            expression, _ = Writer(rng).alternatives(2)
            cases.append((expression, ["".join(rng.choices(pieces, k=rng.randrange(14)))
                                       for _ in range(8)]))
        lines = iter(self.tool(b"".join(
            record(b"P", e) + b"".join(record(b"T", t) for t in texts)
            for e, texts in cases)).splitlines())
        for expression, texts in cases:
            try:
                regex = Regex(expression)
            except Exception:  # pylint: disable=broad-except
                regex = None
            for i, text in enumerate(texts):
                line = next(lines)
                if line.startswith("refused"):
                    self.assertEqual(i, 0)
                    self.assertTrue(line.startswith("refused UNSUPPORTED") or not regex,
                                    (expression, line))
                    refused += 1
                    break
                if regex:
                    ours = pieces_of_matches(line, len(text.encode()))
                    self.assertEqual(ours, pieces_of_peer(regex, text), (expression, text))
        self.assertIsNone(next(lines, None))
        self.assertLess(refused, total // 2)


def add_expressions():
    """Adds a test for each expression."""
    for name, expression in EXPRESSIONS.items():
        def run(self, expression=expression, name=name):
            texts = random_texts(4000 if harness.FULL else 400, name)
            self.compare(expression, texts)
        setattr(Patterns, "test_" + name.replace(" ", "_").replace("-", "_"), run)


add_expressions()

if __name__ == "__main__":
    sys.exit(harness.main())
