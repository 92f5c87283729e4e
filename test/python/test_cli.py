#!/usr/bin/env python3
"""The command line: verbs, flags, values, environment, exit codes, JSON shapes, tensor files.

    python test/python/test_cli.py

Artefacts are tested in test_artefact.py, text IR in test_text.py, bad models in test_bad_files.py.
"""

import os
import pathlib
import re
import shutil
import struct
import sys

import numpy as np
import onnx

import harness
from harness import Case, MODELS, gqac, model, read_ids, write_ids

LLAMA = model("llama")
IDS = MODELS / "llama" / "ref" / "ids.txt"
INPUTS = MODELS / "llama" / "ref" / "hybrid" / "inputs"
VERBS = ("inspect", "compile", "rewrite", "run", "test", "score", "equiv", "generate", "chat",
         "tokenize", "verify", "version", "completion", "man", "devices", "cache", "serve")
NO_MODEL = ("devices", "completion", "man", "tokenize", "cache")
PASSES = ("tidy", "lower", "stateful", "claim", "expand", "order", "plan")
GOOD = {"inspect": (LLAMA,), "compile": (LLAMA, "--stop-after", "tidy"),
        "run": (LLAMA, "--inputs", INPUTS), "score": (LLAMA, "--ids", IDS),
        "equiv": (LLAMA, "--tokens", 4), "version": (),
        "generate": (LLAMA, "--prompt", "x", "-n", 1), "tokenize": (LLAMA, "--text", "x")}


class Usage(Case):
    """Exit 2, and related behaviour."""

    def usage(self, *args, words=()):
        """These arguments are a usage error, reported on stderr only."""
        result = self.check(gqac(*args), 2, *words)
        self.assertEqual(result.out, "", str(result))

    def test_verbs(self):
        """Unknown verbs and verbs that do not exist."""
        for verb in ("frobnicate", "", "-x", "--frobnicate", "INSPECT", "run "):
            self.usage(verb, LLAMA, words=("verb",))
        self.assertEqual(gqac().code, 2)

    def test_exit_codes(self):
        """Every exit code of status.def has a line in --help, and no other one has."""
        listed = (harness.ROOT / "include/gqac/status.def").read_text()
        codes = {int(code) for code in re.findall(r"^GQAC_STATUS\(\w+, (\d+)", listed, re.M)}
        shown = self.good("inspect", "--help").out.split("exit codes:")[1]
        self.assertEqual({int(code) for code in re.findall(r"\d+", shown)}, codes)

    def test_help(self):
        """--help, -h and help print the help on stdout, exit 0."""
        for word in ("--help", "-h", "help"):
            out = self.good(word).out
            for verb in VERBS:
                self.assertIn(f"  {verb} ", out)
        for verb in VERBS:
            out = self.good(verb, "--help").out
            self.assertTrue(out.startswith(f"usage: gqac {verb}"), out)
            self.assertEqual("--threads" in out, verb not in NO_MODEL, verb)
            self.assertEqual(self.good("help", verb).out, out)
        self.assertIn("--splits", self.good("score", LLAMA, "--splits", "-h").out)
        self.assertEqual(self.good("help", "--help").out, self.good("help").out)
        self.usage("help", "scor", words=("unknown verb 'scor'", "gqac score;"))

    def test_attached_values(self):
        """A value attached to a short flag is an error that shows the correct form."""
        for args, want in ((("generate", LLAMA, "--prompt", "x", "-n3"), "-n 3,"),
                           (("bench", LLAMA, "-p=16,32"), "-p 16,32,"),
                           (("compile", LLAMA, "-o./x.gqac"), "-o ./x.gqac,")):
            self.usage(*args, words=("unknown flag", f"try:   {want} with a space between"))

    def test_version(self):
        """version, --version and JSON."""
        out = self.good("version").out
        self.assertRegex(out, r"^gqac \d+\.\d+\.\d+\n$")
        self.assertEqual(self.good("--version").out, out)
        found = self.good("version", "--format", "json").json()
        self.assertEqual(found["version"], out.split()[1])
        self.usage("version", "extra")

    def test_no_model(self):
        """Verbs that open no graph have no flags for it; only the missing argument is named."""
        for verb in NO_MODEL:
            with self.subTest(verb):
                self.usage(verb, "--threads", 3, words=("unknown flag '--threads'",))
                help_text = self.good(verb, "--help").out
                self.assertNotIn("--math", help_text)
                self.assertIn("--quiet", help_text)
        self.usage("cache", words=("gqac: ls|info|verify|gc|export|import DIR ... is missing",))
        self.usage("cache", "ls", words=("gqac: DIR is missing",))
        self.usage("cache", "bogus", words=("gqac: cache 'bogus' is not ls, info",))

    def test_unknown_flags(self):
        """An unknown flag, or one of another verb."""
        for verb, args in GOOD.items():
            for flag in ("--frobnicate", "--frobnicate=3", "-z", "--", "--Threads"):
                self.usage(verb, *args, flag, words=(flag.split("=")[0],))
        self.usage("score", *GOOD["score"], "--dump", "all", words=("--dump",))
        self.usage("inspect", LLAMA, "--ids", IDS, words=("--ids",))

    def test_flag_values(self):
        """Values that no flag accepts."""
        common = (("target", "tpu"), ("target", ""), ("math", "fast"),
                  ("math", "fp16"), ("seqlens-k", "total"), ("threads", "0"), ("threads", "-1"),
                  ("threads", "x"), ("threads", "1.5"), ("threads", "99999999999999999999"),
                  ("threads", ""), ("format", "xml"), ("format", "md"), ("format", ""))
        for flag, value in common:
            for form in ((f"--{flag}", value), (f"--{flag}={value}",)):
                self.usage("score", *GOOD["score"], *form, words=(flag if value else "",))
        for args in (("--batch", "0"), ("--batch", "x"), ("--tokens", "0"), ("--tokens", "-3"),
                     ("--splits", "random:0"), ("--splits", "random:"), ("--splits", "some"),
                     ("--splits", "3,,4"), ("--splits", "3,0"), ("--splits", "-3"),
                     ("--splits", "65"), ("--splits", "30,40"), ("--threads", "1,0"),
                     ("--threads", "1,x"), ("--kv", "heap"), ("--kv", ""), ("--via", "magic"),
                     ("--against", "tpu"), ("--budget", "0s"),
                     ("--budget", "soon"), ("--budget", "-5s"), ("--certificate", ""),
                     ("--ids", IDS, "--tokens", "4")):
            self.usage("equiv", LLAMA, *args)
        for args in (("--repeat", "0"), ("--repeat", "x"), ("--warmup", "-1"), ("--rotate", "0"),
                     ("--input", "input_ids"), ("--input", "=f.npy")):
            self.usage("run", LLAMA, "--inputs", INPUTS, *args)
        for args in (("--memory", "0"), ("--memory", "x"), ("--plan=1",)):
            self.usage("inspect", LLAMA, *args)

    def test_missing_values(self):
        """A flag at the end without its value; a switch with one."""
        self.usage("score", LLAMA, "--ids", words=("--ids",))
        self.usage("score", LLAMA, words=("--ids",))
        self.usage("inspect", LLAMA, "--ops=1", words=("--ops",))
        self.usage("compile", LLAMA, "-o")

    def test_operands(self):
        """Too few and too many."""
        for verb in ("inspect", "run", "score", "equiv", "test", "compile", "generate", "chat",
                     "tokenize"):
            self.usage(verb)
        for verb in ("inspect", "run", "score", "equiv", "compile", "generate", "tokenize"):
            self.usage(verb, *GOOD[verb], "another", words=("another", f"rule:  gqac {verb} MODEL"))
        for verb, flag in (("generate", "--prompt"), ("tokenize", "--text"), ("score", "--text")):
            self.usage(verb, *GOOD[verb], "another", words=(f"try:   {flag} TEXT, in quotes",))
        for args in (("hello",), ("--prompt", "hello"), ("-p", "hello")):
            self.usage("chat", LLAMA, *args, words=("try:   each line of stdin is a message",))

    def test_compile_flags(self):
        """-o, pass names, what to emit."""
        self.usage("compile", LLAMA, words=("-o",))
        self.usage("compile", LLAMA, "--emit", "text", words=("-o",))
        self.usage("compile", LLAMA, "--emit", "gguf", "-o", self.dir / "o", words=("gguf",))
        for flag in ("--dump", "--stop-after", "--disable"):
            for value in ("frobnicate", "tidy,frobnicate", "", "Tidy", "tidy,"):
                self.usage("compile", LLAMA, flag, value, "-o", self.dir / "o",
                           words=("pass",) if value else ())
        self.usage("compile", LLAMA, "--bake", "f", "--emit", "text", "-o", self.dir / "o",
                   words=("--bake",))
        self.usage("compile", LLAMA, "--stop-after", "tidy", "-o", self.dir / "o")
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_equals_and_repeats(self):
        """--flag=value is --flag value; a value is given once; the order is free."""
        want = self.good("score", LLAMA, "--ids", IDS, "--format", "json").out
        self.assertEqual(self.good("score", f"--ids={IDS}", "--format=json", LLAMA).out, want)
        self.assertEqual(self.good("score", "--format=json", LLAMA, "-q", "--ids", IDS, "-q").out, want)
        for args, flag in ((("score", LLAMA, "--ids", IDS, "--ids", IDS), "--ids"),
                           (("score", *GOOD["score"], "--threads=1", "--threads", 2), "--threads"),
                           (("generate", LLAMA, "--prompt", "x", "-n", 1, "--new-tokens", 2), "--new-tokens"),
                           (("generate", *GOOD["generate"], "--kv", "--kv", "off"), "--kv"),
                           (("compile", LLAMA, "-o", "a", "--output", "b"), "--output")):
            self.usage(*args, words=(f"{flag} is given twice",))
        for typed in ("-n", "--new-tokens"):  # an error names the flag as it was typed
            self.usage("generate", LLAMA, "--prompt", "x", typed, -1, words=(f": {typed} '-1' is not a whole",))
            self.usage("generate", LLAMA, "--prompt", "x", typed, words=(f": {typed} needs a value: {typed} N",))
        self.good("tokenize", LLAMA, "--text", "a", "--text", "b")
        self.good("generate", *GOOD["generate"], "--stop", "a", "--stop", "b")

    def test_environment(self):
        """GQAC_<FLAG> replaces a flag that is not given."""
        args = ("score", *GOOD["score"])
        table, told = self.good(*args).out, self.good(*args, "--format", "json").out
        self.assertEqual(self.good(*args, env={"GQAC_FORMAT": "json"}).out, told)
        self.assertEqual(self.good(*args, "--format", "table", env={"GQAC_FORMAT": "json"}).out,
                         table)
        self.assertEqual(self.good(*args, env={"GQAC_FORMAT": ""}).out, table)
        for key, value in (("FORMAT", "xml"), ("THREADS", "0"), ("TARGET", "tpu"),
                           ("SEQLENS_K", "x"), ("MATH", "x"), ("SPLITS", "99")):
            result = self.check(gqac(*args, env={f"GQAC_{key}": value}), 2)
            if key in ("FORMAT", "THREADS", "SPLITS"):
                self.assertIn(f"GQAC_{key} ", result.err)
                self.assertNotIn("wrong: --", result.err)
        self.good(*args, env={"GQAC_SPLITS": "9,15", "GQAC_THREADS": "2"})
        found = self.good("equiv", LLAMA, env={"GQAC_TOKENS": "5", "GQAC_FORMAT": "json"}).json()
        self.assertEqual(found["tokens"], 5)

    def test_missing_files(self):
        """Files that cannot be opened are exit 5, and are named."""
        none = self.dir / "nothere"
        for verb in ("inspect", "run", "score", "equiv", "compile"):
            args = {"score": ("--ids", IDS), "compile": ("-o", self.dir / "o")}.get(verb, ())
            for path in (none, f"{none}.onnx", f"{none}.gqac", f"{none}.gq", none / "x.onnx"):
                self.check(gqac(verb, path, *args), 5, "nothere")
        self.check(gqac("score", LLAMA, "--ids", none), 5, "nothere")
        self.check(gqac("equiv", LLAMA, "--ids", none), 5, "nothere")
        self.check(gqac("run", LLAMA, "--inputs", none), 5, "nothere")
        self.check(gqac("test", none), 5, "nothere")
        self.check(gqac("score", *GOOD["score"], "--logits", none / "l.npy"), 5, "nothere")
        self.check(gqac("compile", LLAMA, "-o", none / "o.gqac"), 5, "nothere")
        self.check(gqac("run", *GOOD["run"], "-o", none / "sub"), 5, "nothere")
        self.check(gqac("run", *GOOD["run"], "--expect", none), 5, "nothere")
        self.check(gqac("inspect", self.dir), (3, 5))

    def test_unwritable_outputs(self):
        """An output that cannot be written is detected before the work, and is named instead of the
        model."""
        none = self.dir / "nothere"
        for args in (("equiv", LLAMA, "--tokens", 4, "--certificate", none / "c.json"),
                     ("score", *GOOD["score"], "--logits", none / "l.npy"),
                     ("score", *GOOD["score"], "--logits", self.dir),
                     ("generate", *GOOD["generate"], "--prompt-cache", none / "p.gqs"),
                     ("run", *GOOD["run"], "-o", none / "sub"), ("run", *GOOD["run"], "-o", IDS),
                     ("compile", LLAMA, "-o", none / "o.gqac"), ("compile", LLAMA, "-o", none / "o.onnx"),
                     ("rewrite", LLAMA, "--pass", "two-graph", "-o", none / "o.onnx")):
            result = self.check(gqac(*args, "-v"), 5)
            self.assertRegex(result.err, rf"where: {args[-1]}\n")
            self.assertNotIn("step of", result.err)
            self.assertEqual((result.out, list(self.dir.iterdir())), ("", []))

    def test_empty_names(self):
        """An empty name of a file or folder is an invalid command line, for every verb."""
        for verb, flag in (("compile", "-o"), ("rewrite", "-o"), ("run", "--inputs"),
                           ("score", "--ids")):
            self.check(gqac(verb, LLAMA, flag, ""), 2, "''", "is not the name of a f")

    def test_names_in_json(self):
        """Names of files and models that are not UTF-8 are escaped in JSON, and no row is lost."""
        odd = os.fsdecode(os.fsencode(self.dir) + b"/\xff")
        shown = f"{self.dir}/\\xff"
        os.mkdir(odd)
        for name in (odd + "/\udcfe.gqs", odd + "/model.onnx"):
            pathlib.Path(name).write_text("notes")
        rows = [self.good("cache", "ls", odd, "--format", "json").json()["files"],
                self.check(gqac("test", odd, "--format", "json"), 1).json()["tests"]]
        self.assertEqual([[row["name"] for row in found] for found in rows],
                         [["\\xfe.gqs"], ["\\xff"]])
        path = self.dir / "odd.gq"
        path.write_text('graph @m(%"\\xffx": f32[2]) {\n  %"\\xfey" = Relu %"\\xffx" : f32[2]\n'
                        '  return %"\\xfey"\n}\n')
        found = self.good("inspect", path, "--format", "json").json()
        self.assertEqual([found[side][0]["name"] for side in ("inputs", "outputs")],
                         ["\\xffx", "\\xfey"])
        split = self.good("rewrite", LLAMA, "--pass", "two-graph", "-o", odd + "/o.onnx",
                          "--format", "json").json()["files"]
        self.assertEqual([name.startswith(shown + "/o") for name in split], [True] * len(split))
        self.assertTrue(split)
        for key in ("written", "equal"):
            found = self.good("equiv", LLAMA, "--tokens", 4, "--certificate", odd + "/c.json",
                              "--format", "json").json()["certificate"]
            self.assertEqual(found, {"file": shown + "/c.json", key: True})

    def test_full_disk(self):
        """If stdout cannot be written, exit 5."""
        with open("/dev/full", "wb") as full:
            child = harness.subprocess.run([harness.GQAC, "inspect", LLAMA], stdout=full,
                                           stderr=harness.subprocess.PIPE, check=False)
        self.assertEqual(child.returncode, 5, child.stderr)
        for args in (("--help",), ("score", "--help"), ("help",), ("--version",), ("compile", "--list-passes")):
            with open("/dev/full", "wb") as full:
                child = harness.subprocess.run([harness.GQAC, *args], stdout=full, stderr=harness.subprocess.PIPE,
                                               check=False)
            self.assertEqual((child.returncode, child.stderr.count(b"standard output")), (5, 1), child.stderr)

    def test_file_size_limit(self):
        """A file that reaches the size limit is exit 5 by name, and nothing is left of it."""
        out = self.dir / "x.gqac"
        for args in (("compile", MODELS / "llama", "-o", out), ("score", *GOOD["score"], "--logits", out)):
            child = harness.subprocess.run(
                ["bash", "-c", 'ulimit -f 16; exec "$0" "$@"', harness.GQAC, *map(str, args)],
                capture_output=True, text=True, check=False)
            self.assertEqual(child.returncode, 5, child.stderr)
            self.assertIn("too large", child.stderr)
            self.assertIn("x.gqac", child.stderr)
            self.assertEqual(list(self.dir.iterdir()), [])

    def test_no_model(self):
        """A file that is not an ONNX file is reported as such, with its type if its first bytes
        show it."""
        for begin, words in ((b"hello", ()), (b"root:x:0:0:root:/root:/bin/bash\n", ()), (b"{}", ("JSON",)),
                             (b"GGUF\3\0\0\0", ("GGUF",)), (b"PK\3\4", ("zip",)),
                             (b"version https://git-lfs.github.com/spec/v1\n", ("git lfs pull",))):
            path = self.dir / "model.onnx"
            path.write_bytes(begin)
            for verb in ("inspect", "generate"):
                self.check(gqac(verb, path, *(("--prompt", "x") if verb == "generate" else ())), 3,
                           "gqac: this is not an ONNX model", "rule:  a model is an .onnx", *words)
        path.write_bytes((MODELS / "llama" / "model.onnx").read_bytes()[:5000])
        self.assertNotIn("not an ONNX model", self.check(gqac("inspect", path), 3, "try:", "incomplete").err)

    def test_missing_file(self):
        """First the fact, then the file that a relative path refers to, the rule, the hint, the
        class."""
        for args, name in ((("run", "no.onnx"), "no.onnx"), (("generate", "no", "--prompt", "x"), "no"),
                           (("inspect", "no.gqac"), "no.gqac"), (("score", LLAMA, "--ids", "no"), "no"),
                           (("run", LLAMA, "--input", "input_ids=no.npy"), "no.npy")):
            result = gqac(*args, cwd=self.dir)
            self.check(result, 5)
            self.assertEqual(result.err.splitlines(), [
                f"gqac: cannot open '{name}': No such file or directory",
                f"  where: {os.path.realpath(self.dir)}/{name}",
                "  rule:  a relative path starts at the working directory",
                "  try:   check the spelling of the path",
                "  exit:  5, a file cannot be opened, read or written"])
        self.assertNotIn("rule:", self.check(gqac("inspect", self.dir / "no.gqac"), 5, "spelling").err)

    def test_incomplete_data(self):
        """External data that is truncated, or was never downloaded, is named with a hint."""
        path = self.dir / "model.onnx"
        path.write_bytes((MODELS / "llama" / "model.onnx").read_bytes())
        data = self.dir / "model.onnx.data"
        for content, words in ((bytes(3000), ("incomplete", "again")),
                               (b"version https://git-lfs.github.com/spec/v1\n", ("git lfs pull",))):
            data.write_bytes(content)
            self.check(gqac("inspect", path), 3, "model.onnx.data", "try:", *words)

    def test_before_packing(self):
        """Lengths that are too large for the model are refused by the name of their flag, before
        weights are packed."""
        def refused(*args, words):
            """the log of passes has none that packs weights"""
            result = self.check(gqac(*args, "-v"), 4, *words)
            self.assertNotIn("pass pack", result.err)
            self.assertNotIn("opened", result.err)
        refused("bench", LLAMA, "-p", "64,1000", words=("row pp1000 ", "640 positions", "-p"))
        refused("bench", LLAMA, "-p", 600, "-n", 64, words=("row tg64@600 ", "-n"))
        refused("bench", LLAMA, "--prefix", "640:1", words=("row hp1@640 ", "--prefix"))
        refused("inspect", LLAMA, "--memory", 641, words=("--memory 641", "640"))
        refused("generate", LLAMA, "--prompt", "x", "--context", 641, words=("--context 641", "640"))

    def test_folder(self):
        """A folder with genai_config.json is a MODEL; without it, it is not."""
        for verb, args in GOOD.items():
            if verb != "version":
                self.good(verb, MODELS / "llama", *args[1:])
        shutil.copytree(MODELS / "llama", self.dir / "m", ignore=shutil.ignore_patterns("ref"))
        config = self.dir / "m" / "genai_config.json"
        for text in ("", "{", "[]", "{}", '{"model": 3}', '{"model": {"decoder": {}}}', "\0",
                     '{"model": {"decoder": {"filename": 3}}}', "[" * 100_000,
                     '{"model": {"decoder": {"filename": "../llama/model.onnx"}}}'):
            config.write_text(text)
            self.check(gqac("inspect", self.dir / "m"), 3)
        config.write_text('{"model": {"decoder": {"filename": "nothere.onnx"}}}')
        self.check(gqac("inspect", self.dir / "m"), (3, 5), "nothere")


class Output(Case):
    """The output of the verbs."""

    def test_inspect(self):
        """Keys, ops, KV pairs."""
        found = self.good("inspect", LLAMA, "--format", "json").json()
        self.assertLessEqual({"ops", "unsupported", "inputs", "outputs", "kv_pairs"}, set(found))
        self.assertEqual(found["ops"]["com.microsoft.GroupQueryAttention"], 2)
        self.assertEqual(found["unsupported"], [])
        self.assertEqual([x["name"] for x in found["inputs"]][:2], ["input_ids", "attention_mask"])
        self.assertEqual(found["outputs"][0]["name"], "logits")
        self.assertIn({"past": "past_key_values.0.value", "present": "present.0.value",
                       "heads": 2, "head_size": 32, "dtype": "f32"}, found["kv_pairs"])
        self.assertEqual(len(found["kv_pairs"]), 4)
        for flag, word in (("--ops", "GroupQueryAttention"), ("--io", "input_ids"),
                           ("--kv", "past_key_values.1.key"), ("--invariance", "split-safe: yes")):
            self.assertIn(word, self.good("inspect", LLAMA, flag).out)
        self.assertNotIn("input_ids", self.good("inspect", LLAMA, "--ops").out)

    def test_names_on_a_terminal(self):
        """Control characters in names are escaped on terminals; JSON contains them unchanged."""
        from onnx import TensorProto, checker, helper, save
        name = "x\x1b[31m\n\u009b5m\x7f"
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["B\x1b[5m", 2])
                for n in (name, "y\x1b]0;t\x07"))
        node = helper.make_node("CumSum", [name, "axis\x1b[H"], [y.name], name="n\x1b[2J")
        axis = helper.make_tensor("axis\x1b[H", TensorProto.INT64, [], [0])
        m = helper.make_model(helper.make_graph([node], "g", [x], [y], [axis]),
                              opset_imports=[helper.make_opsetid("", 17)],
                              producer_name="p\x1b[7m")
        m.ir_version = 8
        checker.check_model(m)
        path = self.dir / "names.onnx"
        save(m, path)
        (self.dir / "in").mkdir()
        np.save(self.dir / "x.npy", np.ones((2, 2), np.float32))
        found = self.good("inspect", path, "--format", "json").json()
        self.assertEqual(found["inputs"][0]["name"], name)
        for args in (("inspect", path), ("inspect", path, "--plan"), ("run", path),
                     ("run", path, "--input", f"{name}={self.dir / 'x.npy'}"),
                     ("run", path, "--input", f"\x1b[1m={self.dir / 'x.npy'}"),
                     ("equiv", path, "--tokens", 4), ("\x1b[2J",)):
            result = gqac(*args)
            text = result.out + result.err
            self.assertTrue(text.strip(), str(result))
            bad = [c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]
            self.assertEqual(bad, [], f"{args}: {text!r}")
        self.assertIn("x\\x1b[31m\\n\\xc2\\x9b5m\\x7f", self.good("inspect", path, "--io").out)

    def test_inspect_unsupported(self):
        """Every unsupported feature is listed, and the exit code is 3."""
        import onnx
        m = onnx.load(LLAMA, load_external_data=False)
        for i, op in enumerate(("Frobnicate", "Frobnicate", "Mystery")):
            m.graph.node.add(op_type=op, input=["logits"], output=[f"out{i}"], name=f"odd{i}")
        (self.dir / "model.onnx").write_bytes(m.SerializeToString())
        shutil.copy(LLAMA.with_name("model.onnx.data"), self.dir)
        result = self.check(gqac("inspect", self.dir / "model.onnx", "--format", "json"), 3)
        rows = {u["op"]: u for u in result.json()["unsupported"]}
        self.assertEqual({op: u["nodes"] for op, u in rows.items()}, {"Frobnicate": 2,
                                                                     "Mystery": 1})
        self.assertTrue(all(u["reason"] for u in rows.values()))
        for key in ("parameters", "kv_pairs", "mixing"):
            self.assertIsNone(result.json()[key])
        table = self.check(gqac("inspect", self.dir / "model.onnx"), 3).out
        for line in ("parameters unknown\n", "past/present pairs: unknown\n", "split-safe: unknown\n"):
            self.assertIn(line, table)
        sound = self.good("inspect", LLAMA, "--format", "json").json()
        self.assertEqual([i["name"] for i in result.json()["inputs"]],
                         [i["name"] for i in sound["inputs"]])
        self.assertEqual([o["name"] for o in result.json()["outputs"]],
                         [o["name"] for o in sound["outputs"]])
        logits = result.json()["outputs"][0]
        self.assertEqual((logits["dtype"], logits["shape"]),
                         ("f32", "[batch_size,sequence_length,258]"))
        self.check(gqac("run", self.dir / "model.onnx"), 3, "Frobnicate", "Mystery")

    def save(self, graph):
        """m.onnx of a graph with an op of domain zz."""
        import onnx
        opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("zz", 1)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10),
                  self.dir / "m.onnx")

    def test_inspect_odd_names(self):
        """Dimensions of an unsupported model are printed like symbols: without control
        characters."""
        import onnx
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Nope", ["x"], ["y"], domain="zz")], "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["\x1b[2J", "a`b", "rows", "P + S"])],
            [onnx.helper.make_tensor_value_info("y", 1, None)])
        self.save(graph)
        out = self.check(gqac("inspect", self.dir / "m.onnx", "--io"), 3).out
        self.assertIn("[`\\x1b[2J`,`a\\`b`,rows,`P + S`]", out)
        self.assertNotIn("\x1b", out)

    def test_inspect_many_initializers(self):
        """Initializers listed as inputs do not count as inputs, however many there are."""
        import onnx
        n = 30000
        names = [f"w{i}" for i in range(n)]
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Nope", ["x"], ["y"], domain="zz")], "g",
            [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in names + ["x"]],
            [onnx.helper.make_tensor_value_info("y", 1, None)],
            [onnx.helper.make_tensor(name, 1, [1], [0.0]) for name in names])
        self.save(graph)
        begun = os.times().children_user
        found = self.check(gqac("inspect", self.dir / "m.onnx", "--format", "json"), 3).json()
        self.assertEqual([x["name"] for x in found["inputs"]], ["x"])
        self.assertLess(os.times().children_user - begun, 2)

    def test_score(self):
        """Keys of the JSON; table; a single token."""
        found = self.good("score", *GOOD["score"], "--format", "json").json()
        self.assertEqual(set(found), {"tokens", "nll", "perplexity"})
        self.assertEqual(found["tokens"], len(read_ids(IDS)))
        self.assertIn("perplexity", self.good("score", *GOOD["score"]).out)
        one = ("score", LLAMA, "--ids", write_ids(self.dir / "1", [5]))
        self.check(gqac(*one), 4, "a single token cannot be scored", "at least two", "--logits")
        one += ("--logits", self.dir / "1.npy")
        found = self.good(*one, "--format", "json").json()
        self.assertEqual((found["tokens"], found["nll"], found["perplexity"]), (1, 0, None))
        self.assertIn("nothing to score", self.good(*one).out)

    def test_score_text(self):
        """A text is scored like its ids, from the command line, a file or stdin."""
        text = "Once upon a time\n"
        path = self.dir / "text"
        path.write_text(text)
        ids = self.dir / "ids"
        ids.write_text(self.good("tokenize", LLAMA, "--file", path).out)
        want = self.good("score", LLAMA, "--ids", ids).out
        self.assertIn("tokens 17,", want)
        self.assertEqual(self.good("score", LLAMA, "--text", text).out, want)
        self.assertEqual(self.good("score", LLAMA, "--text-file", path).out, want)
        for flag, name in (("--text", path), ("--text-file", path), ("--ids", ids)):
            with open(name, "rb") as typed:
                self.assertEqual(self.good("score", LLAMA, flag, "-", stdin=typed).out, want)
        for args in ((), ("--text", "x", "--ids", ids), ("--text", "x", "--text-file", path)):
            self.check(gqac("score", LLAMA, *args), 2, "--text")
        self.check(gqac("score", LLAMA, "--text", ""), 4, "no tokens")
        self.check(gqac("score", LLAMA, "--text", "x"), 4, "a single token", "at least two")
        self.assertIn("tokens 1,", self.good("score", LLAMA, "--text", "x", "--logits", self.dir / "l.npy").out)
        self.check(gqac("score", LLAMA, "--text-file", self.dir / "nothere"), 5, "nothere")

    def test_splits(self):
        """Lengths with the sum N are accepted; larger ones are a usage error."""
        for splits, code in (("48", 0), ("47", 0), ("9,15,24", 0), ("49", 2), ("40,9", 2),
                             ("0", 2), ("3,,3", 2), ("", 2), ("1," * 30, 2), ("x", 2), ("-1", 2),
                             (f"{1 << 62},{1 << 62}", 2), ("9 15", 2)):
            self.check(gqac("score", *GOOD["score"], f"--splits={splits}"), code)

    def test_equiv(self):
        """Keys of the JSON and the table."""
        found = self.good("equiv", LLAMA, "--tokens", 6, "--splits", "2,3", "--threads", "1,2",
                          "--format", "json").json()
        self.assertLessEqual({"planned", "plans", "compared", "differing"}, set(found))
        self.assertEqual((found["planned"], found["plans"], found["differing"]), (2, 2, 0))
        self.assertIn("equal", self.good("equiv", LLAMA, "--tokens", 6).out)

    def test_equiv_budget(self):
        """A time budget ends the run with the results so far."""
        found = self.good("equiv", LLAMA, "--tokens", 600, "--splits", "all", "--threads",
                          "1,2,3,5", "--budget", "1s", "--format", "json").json()
        self.assertLess(found["plans"], found["planned"])
        self.assertEqual(found["differing"], 0)

    def test_run(self):
        """Outputs, times, comparison."""
        found = self.good("run", *GOOD["run"], "--format", "json").json()
        self.assertEqual(found["outputs"][0], {"name": "logits", "dtype": "f32",
                                               "shape": [1, 15, 258]})
        found = self.good("run", *GOOD["run"], "--repeat", 3, "--warmup", 1, "--format",
                          "json").json()
        self.assertEqual(len(found["times_ms"]), 3)
        self.good("run", *GOOD["run"], "-o", self.dir)
        out = self.good("run", *GOOD["run"], "--expect", self.dir).out
        self.assertEqual(out.count("PASS"), 5)
        (self.dir / "logits.npy").unlink()  # outputs without a file are not compared
        self.assertEqual(self.good("run", *GOOD["run"], "--expect", self.dir).out.count("PASS"), 4)

    def test_run_negative_id(self):
        """A token id that would count from the end of the embedding is refused."""
        flags = list(GOOD["run"])
        folder = self.dir / "in"
        shutil.copytree(flags[flags.index("--inputs") + 1], folder)
        ids = np.load(folder / "input_ids.npy")
        ids[0, 2] = -1
        np.save(folder / "input_ids.npy", ids)
        self.check(gqac("run", LLAMA, "--inputs", folder), 4, "token id -1", "index 2", "input_ids")

    def test_run_expect_fails(self):
        """Exit 1 if one element is outside the tolerance."""
        self.good("run", *GOOD["run"], "-o", self.dir)
        logits = np.load(self.dir / "logits.npy")
        logits[0, 3, 7] += 1
        np.save(self.dir / "logits.npy", logits)
        result = self.check(gqac("run", *GOOD["run"], "--expect", self.dir), 1)
        self.assertIn(f"first at {3 * 258 + 7}", result.out)
        np.save(self.dir / "logits.npy", logits[:, :9])
        self.assertNotIn("not compared", result.err)
        np.save(self.dir / "other.npy", logits)
        result = self.check(gqac("run", *GOOD["run"], "--expect", self.dir), 1)
        self.assertIn("FAIL logits: the shape is [1,15,258], expected [1,9,258]\n", result.out)
        self.assertRegex(result.err, "not compared: .*other.npy'\n$")
        self.assertEqual(result.err.count("not compared"), 1)

    def test_run_without_inputs(self):
        """The message explains how to pass inputs."""
        self.check(gqac("run", LLAMA), 2, "is missing", "try:   --inputs DIR")

    def test_run_expect_valid_rows(self):
        """Rows of a static cache after the valid length are not compared, and the output says
        so."""
        stored = MODELS / "llama" / "ref" / "static"  # 9 cached and 15 new tokens in 64 rows
        shutil.copytree(stored / "expect", self.dir / "out")
        (self.dir / "out" / "logits.npy").unlink()  # a few are near 0, where the rule is strict
        words = ("run", LLAMA, "--inputs", stored / "inputs", "--expect", self.dir / "out")
        out = self.good(*words).out
        self.assertEqual(out.count("PASS"), 4)
        left_out = 2 * (64 - 24) * 32
        self.assertIn(f"PASS present.0.key; not compared: {left_out} elements in rows after the "
                      "valid length\n", out)
        found = self.good(*words, "--format", "json").json()
        self.assertEqual([c["compared"] for c in found["compared"]], [2 * 24 * 32] * 4)
        path = self.dir / "out" / "present.0.key.npy"
        rows = np.load(path)
        rows[0, 1, 23, 5] += 1  # the last valid row
        rows[0, 1, 24, 5] += 1
        np.save(path, rows)
        out = self.check(gqac(*words), 1).out
        self.assertIn(f"FAIL present.0.key: 1 of {2 * 24 * 32} elements differ, the first at "
                      f"{(64 + 23) * 32 + 5}:", out)

    def test_test(self):
        """The verdicts, the summary, 77 if nothing ran."""
        self.check(gqac("test", self.dir), 77, "0 passed, 0 failed, 0 skipped")
        found = gqac("test", self.dir, "--format", "json").json()
        self.assertEqual((found["tests"], found["passed"]), ([], 0))

    def test_test_shapes(self):
        """An output of another shape fails with both shapes, one of another type with both types."""
        helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
        make = helper.make_tensor_value_info
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                                  [make("x", f32, ["N", 3])], [make("y", f32, ["N", 3])])
        data = self.dir / "test_relu" / "test_data_set_0"
        data.mkdir(parents=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                    ir_version=8), data.parent / "model.onnx")
        for expected, words in ((np.ones((2, 3), "f4"), "PASS test_relu\n"),
                                (np.ones((1, 3), "f4"), "'y' is f32[2,3], expected f32[1,3]\n"),
                                (np.ones((2, 3), "f2"), "'y' is f32[2,3], expected f16[2,3]\n")):
            for name, array in (("input", np.ones((2, 3), "f4")), ("output", expected)):
                (data / f"{name}_0.pb").write_bytes(
                    onnx.numpy_helper.from_array(array, name[0]).SerializeToString())
            self.check(gqac("test", self.dir), 0 if "PASS" in words else 1, words)

    def test_quiet_streams(self):
        """Results on stdout, nothing on stderr."""
        for verb, args in GOOD.items():
            result = self.good(verb, *args, "-q")
            self.assertEqual(result.err, "", str(result))

    def test_list_passes(self):
        """The names in order, without MODEL or -o."""
        names = [line.split()[0] for line in self.good("compile", "--list-passes").out.splitlines()]
        self.assertEqual([n for n in names if n in PASSES], list(PASSES))
        times = self.good("compile", LLAMA, "--time-passes", "--stop-after", "lower")
        self.assertIn("tidy", times.err)
        self.assertEqual(times.out, "")


    def test_not_a_model(self):
        """A tensor passed as MODEL is named, with an explanation of models."""
        path = self.dir / "x.npy"
        np.save(path, np.zeros(3))
        self.check(gqac("inspect", path), 3, "rule:  a model is an .onnx", "looks like a .npy file")
        config = LLAMA.parent / "genai_config.json"
        self.check(gqac("inspect", config), 3, "looks like JSON", "try:   pass the folder of this file")

    def test_unknown_names(self):
        """An input that the model does not have, and an unknown target: the message lists the
        existing ones."""
        self.check(gqac("run", LLAMA, "--input", f"tokens={INPUTS / 'input_ids.npy'}"), 2,
                   "the model has no input 'tokens'\n", "its inputs: input_ids, ", "--io")
        self.check(gqac("score", LLAMA, "--ids", IDS, "--target", "cuda"), 2,
                   "try:   use cpu, or gpu for a CUDA or OpenCL device")

    def test_no_producer(self):
        """No empty producer is printed."""
        proto = onnx.helper.make_model(onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x"], ["y"])], "g",
            [onnx.helper.make_tensor_value_info("x", 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])]))
        for name, words in (("", "opset 17, 0 parameters"), ("me", "producer me, 0 parameters")):
            proto.producer_name = name
            proto.ir_version = 8
            proto.opset_import[0].version = 17
            onnx.save(proto, self.dir / "m.onnx")
            self.assertIn(words, self.good("inspect", self.dir / "m.onnx").out)


class Ids(Case):
    """Token id files."""

    def test_bad_ids(self):
        """Words that are not ids, and ids that the model does not have."""
        for text in ("", " \n\t ", "x", "1 2 x", "1.5", "1e3", "0x10", "1,2", "+1", "1 2\0 3",
                     "99999999999999999999", "-99999999999999999999", "１"):
            path = self.dir / "ids.txt"
            path.write_bytes(text.encode())
            for verb in ("score", "equiv"):
                self.check(gqac(verb, LLAMA, "--ids", path), 4, "ids.txt")
        path.write_bytes(b"7 1,2 3")
        self.check(gqac("score", LLAMA, "--ids", path), 4, "'1,2' at byte 2 is not a token id",
                   "rule:  ids are whole numbers")
        for bad in (258, -1, 1 << 31, (1 << 63) - 1, -(1 << 63)):
            for ids in ([bad], [1, bad, 2]):
                write_ids(path, ids)
                for verb in ("score", "equiv"):
                    self.check(gqac(verb, LLAMA, "--ids", path), 4, str(bad))
        write_ids(path, [1, 2, 258])
        for verb, *flags in (("score",), ("equiv",), ("equiv", "--batch", 2), ("generate",),
                             ("verify", "--against", "ref")):
            self.check(gqac(verb, LLAMA, "--ids", path, *flags), 4,
                       f"token id 258 at index 2 of '{path}'\n", "0 <= id < 258", "try: ")
        self.good("score", LLAMA, "--ids", write_ids(path, [257, 0]))

    def test_blanks(self):
        """Any white space separates."""
        path = self.dir / "ids.txt"
        path.write_bytes(b"\r\n 256\t1\x0b2\x0c3\r\n\r\n4")
        found = self.good("score", LLAMA, "--ids", path, "--format", "json").json()
        self.assertEqual(found["tokens"], 5)

    def test_too_long(self):
        """Positions after the end of the rotary table are exit 4 before anything is computed."""
        ids = write_ids(self.dir / "ids", [1] * 641)
        for flags in ((), ("--splits", "640")):
            self.check(gqac("score", LLAMA, "--ids", ids, *flags), 4, "640 rows")
        for flags in (("--tokens", 641), ("--ids", ids)):
            self.check(gqac("equiv", LLAMA, *flags), 4, "641 tokens", "640 positions",
                       "--tokens 640 or fewer")


class Tensors(Case):
    """.npy files as inputs of `run`."""

    def call(self, **replace):
        """`run` of the hybrid call; inputs may be replaced by arrays or bytes."""
        args = []
        for name, value in replace.items():
            path = self.dir / f"{name}.npy"
            if isinstance(value, bytes):
                path.write_bytes(value)
            else:
                np.save(path, value)
            args += ["--input", f"{name}={path}"]
        return gqac("run", LLAMA, "--inputs", INPUTS, *args)

    def test_shapes_and_types(self):
        """Wrong dtype, rank or dims."""
        ids = np.load(INPUTS / "input_ids.npy")
        mask = np.load(INPUTS / "attention_mask.npy")
        for bad in (ids.astype(np.int32), ids.astype(np.float32), ids[0], ids[None],
                    np.concatenate([ids, ids]), ids.astype(">i8"), ids.astype(np.uint64),
                    ids.astype("U3"), ids.astype(np.complex64), np.zeros((1, 0), np.int64)):
            self.check(self.call(input_ids=bad), 4)
        for bad in (mask[:, 1:], np.concatenate([mask, mask], 1), mask * 0, -mask, mask * 1000):
            self.check(self.call(attention_mask=bad), 4)
        for bad in (-259, 258, 1 << 40, -(1 << 63)):  # Gather takes -258…257
            wrong = ids.copy()
            wrong[0, 3] = bad
            self.check(self.call(input_ids=wrong), 4, str(bad))

    def test_legal_forms(self):
        """Fortran order, a longer header, format versions 2 and 3 are valid."""
        want = self.good("run", *GOOD["run"], "-o", self.dir / "want")
        self.assertEqual(want.code, 0)
        past = np.load(INPUTS / "past_key_values.0.key.npy")
        text = header(past)
        forms = {"fortran": np.asfortranarray(past),
                 "version 2": npy(text, past.tobytes(), 2),
                 "version 3": npy(text, past.tobytes(), 3),
                 "unaligned": npy(text.strip(), past.tobytes()),
                 "long": npy(text.replace("}", " " * 3000 + "}"), past.tobytes()),
                 "quotes": npy(text.replace("'", '"'), past.tobytes())}
        for label, form in forms.items():
            self.good("run", LLAMA, "--inputs", INPUTS, "--input",
                      f"past_key_values.0.key={self.file(form)}", "-o", self.dir / "got")
            for path in (self.dir / "want").iterdir():
                self.assertEqual(path.read_bytes(), (self.dir / "got" / path.name).read_bytes(),
                                 label)

    def test_x26_fill(self):
        """Row X26: --fill is equivalent to files with the same bytes: a mask, empty pasts, a
        scalar."""
        folder = LLAMA.parent / "ref" / "prefill" / "inputs"
        flags = ["--input", f"input_ids={folder}/input_ids.npy", "--fill", "attention_mask=1,9:9"]
        for layer in (0, 1):
            for part in ("key", "value"):
                flags += ["--fill", f"past_key_values.{layer}.{part}=1,2,0,32"]
        self.good("run", LLAMA, "--inputs", folder, "-o", self.dir / "want")
        self.good("run", LLAMA, *flags, "-o", self.dir / "got")
        for path in (self.dir / "want").iterdir():
            self.assertEqual(path.read_bytes(), (self.dir / "got" / path.name).read_bytes())
        text = "graph @copy(%x: {0}) {{\n  %y = Identity %x : {0}\n  return %y\n}}\n"
        path = self.dir / "copy.gq"
        for kind in ("f32", "f16", "f64", "i64", "i32", "u8", "bool"):
            for shape, fill, want in (("[2,3]", "2,3:4", [[1, 1, 1], [1, 0, 0]]), ("[]", ":1", 1),
                                      ("[]", ":0", 0), ("[0]", "0", []), ("[2]", "2:0", [0, 0])):
                path.write_text(text.format(kind + shape))
                self.good("run", path, "--fill", f"x={fill}", "-o", self.dir / "copy")
                np.testing.assert_array_equal(np.load(self.dir / "copy" / "y.npy"), want)
        for bad in ("x", "x=", "=2", "z=2", "x=2:", "x=2,", "x=,2", "x=2:3", "x=-2", "x=2x3",
                    "x=1,1,1,1,1,1,1,1,1", "x=2:9223372036854775808", "x=2 :1"):
            self.check(gqac("run", path, "--fill", bad), 2)
        self.check(gqac("run", path, "--fill", "x=2", "--fill", "x=2"), 2)
        self.check(gqac("run", path, "--fill", "x=9999999999,9999999999"), 2)
        self.check(gqac("run", path, "--fill", "x=3:1"), 4)

    def file(self, form):
        """A .npy file of an array or bytes."""
        path = self.dir / "form.npy"
        if isinstance(form, bytes):
            path.write_bytes(form)
        else:
            np.save(path, form)
        return path

    def test_damaged(self):
        """Damaged headers and lengths: exit 4 each."""
        ids = np.load(INPUTS / "input_ids.npy")
        damaged = damage(header(ids), ids.tobytes())
        self.assertGreaterEqual(len(damaged), 25)
        self.check(self.call(input_ids=npy(header(ids), ids.tobytes())), 0)
        for label, data in damaged.items():
            with self.subTest(label):
                self.check(self.call(input_ids=data), 4)

    def test_every_truncation(self):
        """Truncated at every byte."""
        data = (INPUTS / "input_ids.npy").read_bytes()
        for cut in range(0, len(data), 1 if harness.FULL else 7):
            self.check(self.call(input_ids=data[:cut]), 4)

    def test_names(self):
        """Unknown, repeated and missing input names are usage errors."""
        ids = INPUTS / "input_ids.npy"
        self.check(gqac("run", LLAMA, "--input", f"ghost={ids}"), 2, "ghost")
        self.check(gqac("run", LLAMA, "--input", f"input_ids={ids}", "--input",
                        f"input_ids={ids}"), 2, "twice")
        self.check(gqac("run", LLAMA, "--input", f"input_ids={ids}"), (2, 4), "attention_mask")


def header(array):
    """The dict of an array's .npy header, padded as NumPy does."""
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    return text + " " * (63 - (10 + len(text)) % 64) + "\n"


def npy(text, data, version=1, magic=b"\x93NUMPY"):
    """A .npy file from its parts."""
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return magic + bytes([version, 0]) + size + text.encode("latin-1") + data


def damage(text, data):
    """{label: .npy bytes} with one fault each, of an int64 [1,N] array."""
    swaps = {"descr missing": ("'descr': '<i8', ", ""), "shape missing": ("'shape'", "'form'"),
             "order missing": ("'fortran_order': False, ", ""), "big endian": ("<i8", ">i8"),
             "object": ("<i8", "|O"), "text type": ("<i8", "<U8"),
             "record": ("'<i8'", "[('a','<i8')]"),
             "long descr": ("<i8", "<i8" * 20), "negative dim": ("(1,", "(-1,"),
             "huge dim": ("(1,", f"({1 << 62},"), "overflowing dim": ("(1,", f"({'9' * 40},"),
             "wrapping dims": ("(1,", f"({1 << 32}, {1 << 32},"), "float dim": ("(1,", "(1.0,"),
             "rank 9": ("(1,", "(1, 1, 1, 1, 1, 1, 1, 1,"), "dim more": ("(1,", "(2,"),
             "no closing brace": ("}", " "), "no opening brace": ("{", " "), "twice": (
                 "'fortran_order'", "'descr': '<i8', 'fortran_order'"), "word order": (
                 "False", "Maybe"), "code": ("False", "__import__('os')"), "list": ("(1,", "[1,"),
             "text behind": ("}", "} junk"), "unknown key": ("'shape'", "'x': 1, 'shape'"),
             "NUL": ("'shape'", "\0'shape'"), "no commas": (", ", "  ")}
    damaged = {label: npy(text.replace(*swap), data) for label, swap in swaps.items()}
    damaged.update({
        "magic": npy(text, data, magic=b"\x93NUMPX"), "version 0": npy(text, data, 0),
        "version 9": npy(text, data, 9), "one byte short": npy(text, data[:-1]),
        "one byte long": npy(text, data + b"\0"), "no data": npy(text, b""),
        "empty": b"", "magic only": b"\x93NUMPY", "zip": b"PK\x03\x04" + bytes(100),
        "header length past the end": b"\x93NUMPY\1\0\xff\xff" + text.encode() + data,
        "header length 0": b"\x93NUMPY\1\0\0\0" + text.encode() + data,
        "header of 4 GiB": b"\x93NUMPY\2\0\xff\xff\xff\xff" + text.encode() + data})
    return damaged


if __name__ == "__main__":
    sys.exit(harness.main())
