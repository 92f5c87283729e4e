#!/usr/bin/env python3
"""Damaged model folders and artefacts: refused by what and where, fast, in little memory.

    python test/python/test_bad_text_files.py [WORD ...]     only rows whose name has the word
    python test/python/test_bad_text_files.py --show         every message, for reading

A row spoils one file of a valid folder, with the expected exit codes and words of the message; all
verbs that read the file must refuse it in the same way. Unsupported parts of a tokenizer or
template are not damage: compile includes the file, and only calls that need it fail.
"""

import functools
import json
import os
import shutil
import struct
from dataclasses import dataclass

import badrows
import harness
from harness import Case, GIB, MODELS, gqac

CONFIG, TOKENIZER, TEMPLATE, SPECIAL = ("genai_config.json", "tokenizer.json",
                                        "chat_template.jinja", "tokenizer_config.json")
GENERATION = "generation_config.json"  # not in the valid folder
# the verbs that read each file; compile includes all of them
VERBS = {CONFIG: ("score", "generate", "compile"), TOKENIZER: ("tokenize", "generate", "compile"),
         TEMPLATE: ("compile",), SPECIAL: ("compile",), GENERATION: ("score", "generate", "compile")}
DEEP = 100_000


@dataclass
class Row:
    """One way to spoil a folder."""

    name: str
    file: str
    spoil: object  # called with the path of the file
    words: tuple = ()
    codes: tuple = (3,)
    kept: bool = False  # valid, but not supported by gqac
    long: bool = False  # mostly for the long tier


ROWS = []


def row(name, file, spoil, *words, codes=(3,), **more):
    """Add a row."""
    ROWS.append(Row(name, file, spoil, words, codes, **more))


def text(content):
    """Replaces the content of the file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda path: path.write_bytes(data)


def edit(*keys, value=None, drop=False):
    """The JSON of the file, with one value replaced or dropped."""
    def spoil(path):
        root = json.loads(path.read_text())
        at = root
        for key in keys[:-1]:
            at = at[key]
        if drop:
            del at[keys[-1]]
        else:
            at[keys[-1]] = value
        path.write_text(json.dumps(root))
    return spoil


def cut(fraction):
    """Truncates the file."""
    def spoil(path):
        data = path.read_bytes()
        path.write_bytes(data[:int(len(data) * fraction)])
    return spoil


def replaced(old, new):
    """Replaces some bytes of the file."""
    def spoil(path):
        data = path.read_bytes()
        assert old in data, (path, old)
        path.write_bytes(data.replace(old, new, 1))
    return spoil


def instead(make):
    """Puts something that is not a regular file in its place."""
    def spoil(path):
        path.unlink(missing_ok=True)
        make(path)
    return spoil


def outside(path):
    """A link to a valid file outside the folder."""
    other = path.parent.parent / f"outside-{path.name}"
    shutil.move(path, other)
    path.symlink_to(other)


def alone(spoil):
    """Makes the template of tokenizer_config.json the only one."""
    def both(path):
        (path.parent / TEMPLATE).unlink()
        spoil(path)
    return both


def huge(path):
    """Larger than the limit; a hole, so that it costs nothing."""
    with open(path, "ab") as f:
        f.truncate(1 << 30)


def everywhere():
    """Damage that any JSON file may have."""
    for file in (CONFIG, TOKENIZER, SPECIAL):
        row("empty", file, text(""), file, "JSON")
        row("cut in the middle", file, cut(0.5), file, "line")
        row("cut at the end", file, cut(0.99), file, "JSON")
        row("not JSON", file, text("hello"), file, "JSON")
        row("a list", file, text("[]"), file)
        row("a number", file, text("17"), file)
        row("deep lists", file, text("[" * DEEP + "]" * DEEP), file)
        row("deep objects", file, text('{"a":' * DEEP + "1" + "}" * DEEP), file)
        row("deep and open", file, text('{"a":[' * DEEP), file)
        row("not UTF-8", file, text(b'{"a": "\xff\xfe"}'), file)
        row("half a surrogate", file, text('{"a": "\\ud800"}'), file)
        row("NUL in a text", file, text('{"a": "\\u0000b"}'), file)
        row("NUL behind the end", file, lambda p: p.write_bytes(p.read_bytes() + b"\0"), file)
        row("junk behind the end", file, lambda p: p.write_bytes(p.read_bytes() + b"{}"), file)
        row("NaN", file, text('{"a": NaN}'), file)
        row("infinite number", file, text('{"a": 1e999}'), file)
        row("huge integer", file, text('{"a": ' + "9" * DEEP + "}"), file)
        row("one key twice", file, text('{"a": 1, "a": 2}'), file)
        row("too large", file, huge, file, "bytes")
    for file in (CONFIG, TOKENIZER, SPECIAL, TEMPLATE):
        row("a folder", file, instead(lambda p: p.mkdir()), file, codes=(5,))
        row("a FIFO", file, instead(os.mkfifo), file, codes=(5,))
        row("a link that leads out", file, outside, file, "symbolic link")
        row("a link to a device", file, instead(lambda p: p.symlink_to("/dev/zero")), file)
        row("a link to itself", file, instead(lambda p: p.symlink_to(p.name)), file)


def configs():
    """Damage to genai_config.json."""
    row("missing", CONFIG, lambda p: p.unlink(), "genai_config.json", "folder", codes=(5,))
    for name in ("../model.onnx", "/etc/passwd", "..", "a/../b.onnx", "a//b.onnx", "", "a\\b", 7, None, ["m.onnx"]):
        row(f"decoder {name!r}", CONFIG, edit("model", "decoder", "filename", value=name),
            "model.decoder.filename")
    row("no decoder", CONFIG, edit("model", "decoder", drop=True), "model.decoder.filename")
    row("decoder of the wrong type", CONFIG, edit("model", "decoder", value=[]), "model.decoder")
    for key in ("bos_token_id", "pad_token_id", "eos_token_id"):
        for value in (258, -2, 1 << 40, "0", 1.5, {}, True):
            row(f"{key} {value!r}", CONFIG, edit("model", key, value=value), f"model.{key}")
    row("eos list out of range", CONFIG, edit("model", "eos_token_id", value=[1, 258]), "258")
    row("eos list of lists", CONFIG, edit("model", "eos_token_id", value=[[1]]), "eos_token_id")
    row("eos list of 100k", CONFIG, edit("model", "eos_token_id", value=[1] * DEEP), "100000")
    row("vocabulary negative", CONFIG, edit("model", "vocab_size", value=-5), "vocab_size")
    row("vocabulary huge", CONFIG, edit("model", "vocab_size", value=1 << 60), "vocab_size")
    row("context as text", CONFIG, edit("model", "context_length", value="640"), "context_length")
    row("10^9 layers", CONFIG, edit("model", "decoder", "num_hidden_layers", value=10 ** 9),
        "num_hidden_layers")
    row("negative layers", CONFIG, edit("model", "decoder", "num_hidden_layers", value=-1),
        "num_hidden_layers")
    for pattern in ("%d%d", "%s", "%n", "k", "%", "%%d", "%5d", "%d%n", "%1$d", "%d" * 999, 5, ""):
        row(f"pattern {str(pattern)[:12]!r}", CONFIG,
            edit("model", "decoder", "inputs", "past_key_names", value=pattern), "past_key_names")
    row("keys called like values", CONFIG,
        edit("model", "decoder", "inputs", "past_key_names", value="past_key_values.%d.value"),
        "two inputs", "past_key_values.0.")
    row("inputs of the wrong type", CONFIG, edit("model", "decoder", "inputs", value=3), "inputs")
    for key, value in (("num_beams", "4"), ("do_sample", "yes"), ("temperature", -1), ("top_p", 2), ("top_k", -1),
                       ("repetition_penalty", 0), ("min_length", "1"), ("max_length", 2.5)):
        row(f"search {key} {value!r}", CONFIG, edit("search", key, value=value), f"search.{key}")
    row("search of the wrong type", CONFIG, edit("search", value=[1]), "search")
    for key in ("vision", "speech", "encoder", "embedding"):
        row(f"part {key}", CONFIG, edit("model", key, value={"filename": "x.onnx"}), key)
    row("a pipeline", CONFIG, edit("model", "decoder", "pipeline", value=[{"a": {}}]), "pipeline")


def generation():
    """Damage to generation_config.json."""
    row("empty", GENERATION, text(""), GENERATION, "JSON")
    row("open", GENERATION, text('{"suppress_tokens": ['), GENERATION, "JSON")
    row("a list", GENERATION, text("[]"), GENERATION)
    row("deep lists", GENERATION, text("[" * DEEP + "]" * DEEP), GENERATION)
    row("one key twice", GENERATION, text('{"a": 1, "a": 2}'), GENERATION)
    row("too large", GENERATION, huge, GENERATION, "bytes")
    row("a folder", GENERATION, lambda p: p.mkdir(), GENERATION, codes=(5,))
    row("a FIFO", GENERATION, os.mkfifo, GENERATION, codes=(5,))
    row("a link to a device", GENERATION, lambda p: p.symlink_to("/dev/zero"), GENERATION)
    for key in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
                "forced_eos_token_id", "forced_decoder_ids"):
        for value in (-1, "0", 1.5, [[-1]], [1 << 40], {}, True):
            row(f"{key} {value!r}", GENERATION, text(json.dumps({key: value})), key)


def tokenizers():
    """Damage to tokenizer.json; the tests of the tokenizer have more."""
    for kind in ("WordPiece", "WordLevel", "Nonsense"):
        row(f"model of type {kind}", TOKENIZER, edit("model", "type", value=kind), kind,
            kept=True)
    row("millions of lists", TOKENIZER, text('{"a": [' + "[]," * 9_000_000 + "1]}"), "values")
    row("no model", TOKENIZER, edit("model", drop=True), TOKENIZER)
    row("no vocabulary", TOKENIZER, edit("model", "vocab", drop=True), TOKENIZER)
    row("vocabulary is a list", TOKENIZER, edit("model", "vocab", value=["a"]), TOKENIZER)
    row("id negative", TOKENIZER, edit("model", "vocab", "!", value=-1), TOKENIZER)
    row("id huge", TOKENIZER, edit("model", "vocab", "!", value=1 << 62), TOKENIZER)
    row("id as text", TOKENIZER, edit("model", "vocab", "!", value="0"), TOKENIZER)
    row("two tokens of one id", TOKENIZER, edit("model", "vocab", "!", value=1), TOKENIZER)
    row("merge of unknown tokens", TOKENIZER, edit("model", "merges", value=["qq zz"]), TOKENIZER)
    row("merge of one token", TOKENIZER, edit("model", "merges", value=["a"]), TOKENIZER)
    row("merges of the wrong type", TOKENIZER, edit("model", "merges", value={"a": "b"}), TOKENIZER)
    row("merges of numbers", TOKENIZER, edit("model", "merges", value=[1, 2]), TOKENIZER)
    for part in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        row(f"unknown {part}", TOKENIZER, edit(part, value={"type": "Evil"}), "Evil", kept=True)
    row("deep pre-tokenizers", TOKENIZER, edit("pre_tokenizer", value=nested(200)), TOKENIZER)
    row("expression that does not parse", TOKENIZER, edit("pre_tokenizer", value={
        "type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}),
        TOKENIZER)
    row("expression repeated without end", TOKENIZER, edit("pre_tokenizer", value={
        "type": "Split", "pattern": {"Regex": "(((a{999}){999}){999}){999}"},
        "behavior": "Isolated", "invert": False}), TOKENIZER)
    row("added token without content", TOKENIZER, edit("added_tokens", value=[{"id": 3}]),
        TOKENIZER)
    row("added token of a huge id", TOKENIZER, edit("added_tokens", 0, "id", value=1 << 50),
        TOKENIZER)


def further():
    """More damage to tokenizers and templates, for the long tier."""
    more = functools.partial(row, long=True)
    for label, value in (("a list", []), ("a number", 5), ("a text", "BPE")):
        more(f"model is {label}", TOKENIZER, edit("model", value=value), TOKENIZER)
    for label, value in (("a fraction", 1.5), ("null", None), ("a list", [1]), ("2^31", 1 << 31), ("-2^63", -1 << 63)):
        more(f"an id that is {label}", TOKENIZER, edit("model", "vocab", "!", value=value), TOKENIZER)
    for key in ("dropout", "fuse_unk", "byte_fallback", "ignore_merges", "continuing_subword_prefix", "unk_token"):
        more(f"{key} of the wrong type", TOKENIZER, edit("model", key, value={"a": [1]}), TOKENIZER)
    for label, value in (("of three tokens", [["a", "b", "c"]]), ("of numbers in pairs", [[1, 2]]), ("of an empty pair", [[]]),
                         ("of null", [None]), ("of empty texts", [""]), ("of three words", ["a b c"])):
        more(f"merges {label}", TOKENIZER, edit("model", "merges", value=value), TOKENIZER)
    for part, value in (("normalizer", 5), ("normalizer", []), ("normalizer", {}), ("pre_tokenizer", "ByteLevel"),
                        ("pre_tokenizer", {"type": "Sequence"}), ("pre_tokenizer", {"type": "Sequence", "pretokenizers": 5}),
                        ("pre_tokenizer", {"type": "Split"}), ("pre_tokenizer", {"type": 5}), ("decoder", [1]),
                        ("decoder", {"type": "Sequence", "decoders": {}}), ("post_processor", 5),
                        ("post_processor", {"type": "TemplateProcessing", "single": 5}),
                        ("post_processor", {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "nobody", "type_id": 0}}],
                                            "pair": [], "special_tokens": {}})):
        more(f"{part} {str(value)[:70]}", TOKENIZER, edit(part, value=value), TOKENIZER)
    for label, value in (("a number", [5]), ("an object", {}), ("a text", "x"), ("null in a list", [None]),
                         ("without an id", [{"content": "x"}]), ("with a negative id", [{"id": -1, "content": "x"}]),
                         ("with an id that is a text", [{"id": "3", "content": "x"}]), ("with content that is a number", [{"id": 3, "content": 5}]),
                         ("that is empty", [{"id": 3, "content": ""}]), ("special that is a text", [{"id": 3, "content": "x", "special": "yes"}])):
        more(f"added tokens: {label}", TOKENIZER, edit("added_tokens", value=value), TOKENIZER)
    for source, kept in (("[z-a]", False), ("\\", False), ("(?i", False), ("*a", False), ("(?P<", True), ("(?<=a+)b", True),
                         ("a{2,1}", True), ("[[:nobody:]]", True), ("\\p{Nobody}", True), ("a**" * 3 + "(", True)):
        more(f"expression {source!r}", TOKENIZER, edit("pre_tokenizer", value={
            "type": "Split", "pattern": {"Regex": source}, "behavior": "Isolated", "invert": False}), TOKENIZER, kept=kept)
    more("behaviour of nobody", TOKENIZER, edit("pre_tokenizer", value={
        "type": "Split", "pattern": {"String": "a"}, "behavior": "Nowhere", "invert": False}), TOKENIZER, "Nowhere", kept=True)
    for source in ("{% for %}", "{% set %}", "{% macro %}", "{% else %}", "{{ a.b.[ }}", "{{ 1 + }}", "{{ [1, }}", "{{ {1: }}",
                   "{# a", "{%", "{{", "{% if a %}{% else %}{% else %}{% endif %}", "{% raw %}a", "{{ 'a' 'b }}", "{{ a if }}",
                   "{{ a[1 }}", "{{ f(a=1, 2) }}", "{% set a.b.c %}", "{% for a b in c %}{% endfor %}", "{{ 99999999999999999999 }}",
                   "{% macro m(a, a) %}{% endmacro %}", "{% call x %}"):
        more(f"template {source!r}", TEMPLATE, text(source), TEMPLATE)


def nested(depth):
    """Nested Sequences."""
    value = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    for _ in range(depth):
        value = {"type": "Sequence", "pretokenizers": [value]}
    return value


def templates():
    """Damage to templates and special tokens; the tests of templates have more."""
    for source in ("{% if x %}", "{{ ", "{% endfor %}", "{{ 'a }}", "{{ a | }}", "{{ (((( }}",
                   "{% for x in %}{% endfor %}", "{% nonsense %}"):
        row(f"template {source!r}", TEMPLATE, text(source), TEMPLATE)
    for source, word in (("{% include 'x' %}", "include"),
                         ("{{ a | no_such_filter }}", "no_such_filter"),
                         ("{{ a is no_such_test }}", "no_such_test")):
        row(f"template {source!r}", TEMPLATE, text(source), TEMPLATE, word, kept=True)
        row(f"template {source!r}", SPECIAL, alone(edit("chat_template", value=source)), SPECIAL,
            word, kept=True)
    row("template of brackets", TEMPLATE, text("{{ " + "(" * DEEP + ")" * DEEP + " }}"), TEMPLATE)
    row("template of nested ifs", TEMPLATE, text("{% if a %}" * DEEP), TEMPLATE)
    row("template not UTF-8", TEMPLATE, text(b"\xff{{ a }}"), TEMPLATE)
    row("template too large", TEMPLATE, huge, TEMPLATE, "bytes")
    for name, value in (("is a number", 3), ("list of numbers", [3]),
                        ("without text", [{"name": "default"}]), ("that does not parse", "{% if %}"),
                        ("list that does not parse", [{"name": "x", "template": "{{ ("}])):
        row(f"template {name}", SPECIAL, alone(edit("chat_template", value=value)), SPECIAL)
    row("bos is a number", SPECIAL, edit("bos_token", value=3), "bos_token")
    row("eos without content", SPECIAL, edit("eos_token", value={"a": 1}), "eos_token")
    row("tokens of the wrong type", SPECIAL, edit("additional_special_tokens", value="<a>"),
        "additional_special_tokens")


for add in (everywhere, configs, generation, tokenizers, templates, further):
    add()


def sound(folder):
    """A valid folder."""
    shutil.copytree(MODELS / "llama", folder, ignore=shutil.ignore_patterns("ref"))
    (folder / TEMPLATE).write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return folder


def arguments(verb, model, folder):
    """The arguments of gqac."""
    ids = MODELS / "llama" / "ref" / "ids.txt"
    return {"score": ("score", model, "--ids", ids),
            "tokenize": ("tokenize", model, "--text", "a tiny text"),
            "generate": ("generate", model, "--prompt", "a tiny text", "-n", 2, "-q"),
            "ids": ("generate", model, "--ids", ids, "-n", 2),
            "stop": ("generate", model, "--ids", ids, "-n", 2, "--stop", "x", "-q"),
            "template": ("tokenize", model, "--text", "a tiny text", "--template"),
            "chat": ("chat", model, "-q"),
            "compile": ("compile", model, "-o", folder / "out.gqac")}[verb]


class BadText(Case):
    """One test for each row, added below."""

    def refused(self, result, codes, words):
        """The exit code, the words, the limits."""
        self.check(result, codes, "where:", *words)
        badrows.check_limits(self, result)

    def test_sound(self):
        """The folder that the rows spoil is accepted by every verb, and so is its artefact."""
        folder = sound(self.dir / "m")
        for verb in ("score", "tokenize", "generate", "compile"):
            self.good(*arguments(verb, folder, self.dir))
        for verb in ("score", "tokenize", "generate"):
            self.good(*arguments(verb, self.dir / "out.gqac", self.dir))

    def test_enough(self):
        """The corpus has its minimum size, and no two rows have the same name."""
        names = [(r.file, r.name) for r in ROWS]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreaterEqual(len(ROWS), 150)
        print(f"{len(ROWS)} spoilt folders")

    def spoilt(self, spoilt):
        """All verbs that read the file refuse it; compile leaves no artefact."""
        folder = sound(self.dir / "m")
        spoilt.spoil(folder / spoilt.file)
        if spoilt.kept:
            self.kept(spoilt, folder)
            return
        verbs = VERBS[spoilt.file]
        for verb in verbs if harness.FULL else verbs[-2:]:
            result = gqac(*arguments(verb, folder, self.dir), memory=2 * GIB)
            self.refused(result, spoilt.codes, spoilt.words)
        self.assertFalse((self.dir / "out.gqac").exists())

    def kept(self, spoilt, folder):
        """In folder and artefact: refused where the part is needed, accepted where it is not."""
        whole = spoilt.file == TOKENIZER
        needs = ("tokenize", "generate", "stop", "chat") if whole else ("template", "chat")
        path = self.dir / "out.gqac"
        done = self.check(gqac(*arguments("compile", folder, self.dir)), 0, *spoilt.words)
        self.assertEqual(done.err.count("\n"), 2, str(done))  # this, and the name of the written
                                                              # file
        for model in (folder, path):
            for verb in needs if harness.FULL else needs[:1] + needs[-1:]:
                self.refused(gqac(*arguments(verb, model, self.dir)), (3,), spoilt.words)
            done = self.good(*arguments("ids" if whole else "generate", model, self.dir))
            if whole:
                self.assertRegex(done.out, r"\A\d+ \d+\n\Z")
                self.check(done, 0, *spoilt.words)
        done = self.good("compile", path, "-o", self.dir / "again.gqac", "-q")
        self.assertEqual(done.err, "")
        self.assertEqual((self.dir / "again.gqac").read_bytes(), path.read_bytes())

    def test_scores_all_the_same(self):
        """score does not need the tokenizer and the template."""
        folder = sound(self.dir / "m")
        for file in (TOKENIZER, TEMPLATE, SPECIAL):
            (folder / file).write_text("{")
        self.good(*arguments("score", folder, self.dir))

    def test_search_that_is_not_built(self):
        """Generation refuses the setting by name; scoring does not search."""
        for key, value in (("num_beams", 4), ("num_return_sequences", 2)):
            folder = sound(self.dir / key / "m")
            edit("search", key, value=value)(folder / CONFIG)
            self.refused(gqac(*arguments("generate", folder, self.dir), "-q"), (3,),
                         (f"search.{key} is {value}",))
            self.good(*arguments("score", folder, self.dir))

    def test_absent_parts(self):
        """A missing part is a usage error that says so."""
        folder = sound(self.dir / "m")
        (folder / TOKENIZER).unlink()
        for verb in ("tokenize", "generate"):
            result = gqac(*arguments(verb, folder, self.dir))
            self.assertEqual(result.code, 2, str(result))
            self.assertIn("tokenizer.json", result.err)
        self.good(*arguments("compile", folder, self.dir))


    def test_cut_tokenizer(self):
        """A truncated tokenizer.json is not valid JSON; the error has the place and a hint."""
        folder = sound(self.dir / "m")
        path = folder / TOKENIZER
        path.write_bytes(path.read_bytes()[:3000])
        self.check(gqac("tokenize", folder, "--text", "x"), 3, "the file is not valid JSON", TOKENIZER,
                   "line ", "the file may be incomplete")


    def test_byte_order_mark(self):
        """A byte order mark is named in the message, for each file."""
        for name in (CONFIG, TOKENIZER, SPECIAL, "generation_config.json"):
            folder = sound(self.dir / name)
            file = folder / name
            file.write_bytes(b"\xef\xbb\xbf" + (file.read_bytes() if file.exists() else b"{}"))
            self.check(gqac(*arguments("chat" if name == SPECIAL else "generate", folder, self.dir)), 3,
                       "is not valid JSON: it begins with a byte order mark", name)


class BadArtefact(Case):
    """Damage to the files in an artefact."""

    def test_damage(self):
        """One flipped bit in each attached file; every verb that reads it detects it, and so do
        compile and --verify."""
        folder = sound(self.dir / "m")
        path, bad = self.dir / "out.gqac", self.dir / "bad.gqac"
        self.good("compile", folder, "-o", path)
        data = path.read_bytes()
        sections = struct.unpack_from("<I", data, 24)[0]
        self.assertEqual(sections, 8)
        for s in range(4, sections):
            at = 64 + 192 * s
            name = data[at:at + 128].rstrip(b"\0").decode()
            self.assertTrue(name.startswith("file:"), name)
            offset, length = struct.unpack_from("<QQ", data, at + 128)
            for place in (offset, offset + length // 2, offset + length - 1):
                bad.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1:])
                for args in (("tokenize", bad, "--text", "a"), ("inspect", bad, "--verify"),
                             ("compile", bad, "-o", self.dir / "o.gqac")):
                    self.check(gqac(*args), 3, name, "bad.gqac")
            bad.write_bytes(data[:offset + length // 2])
            self.check(gqac("tokenize", bad, "--text", "a"), 3, "bad.gqac")
        self.assertFalse((self.dir / "o.gqac").exists())


def add_rows():
    """Adds a method for each row."""
    for i, r in enumerate(ROWS):
        def test(self, r=r):
            self.spoilt(r)
        if not harness.FULL and r.long and i % 20:
            continue
        setattr(BadText, f"test {i:03} {r.file}: {r.name}", test)


def show():
    """Prints the outcome of every row."""
    case = badrows.scratch()
    for i, r in enumerate(ROWS):
        folder = sound(case.dir / str(i) / "m")
        r.spoil(folder / r.file)
        for verb in (*VERBS[r.file], "chat") if r.kept else VERBS[r.file]:
            result = gqac(*arguments(verb, folder, folder.parent), memory=2 * GIB)
            codes = (0, 3) if r.kept else r.codes
            good = result.code in codes and all(w.lower() in result.err.lower() for w in r.words)
            lines = " | ".join(result.err.replace(str(case.dir), "").strip().splitlines())
            print(f"{'ok ' if good else 'BAD'} {r.file}: {r.name}: {verb} {result.code} "
                  f"{result.seconds:.2f}s {result.peak >> 20}M {lines[:300]}")
        shutil.rmtree(folder.parent)
    case.doCleanups()


add_rows()

if __name__ == "__main__":
    badrows.main(show)
