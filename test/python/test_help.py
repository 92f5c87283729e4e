#!/usr/bin/env python3
"""Output generated from the tables of flags: help, suggestions, manual pages, completion.

    python test/python/test_help.py
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys

import harness
from harness import Case, GQAC, MODELS, gqac

LLAMA = MODELS / "llama" / "model.onnx"


class Help(Case):
    """Each page, in every form."""

    def verbs(self):
        """The verbs listed in the help."""
        return re.findall(r"^  ([a-z]+) +\S", self.good("--help").out.split("examples:")[0], re.M)

    def flags(self, verb):
        """{flag: its value or ""} of the help of a verb."""
        rows = re.findall(r"^  (?:-[a-z], )?--([a-z0-9-]+)(?: (\S+))?(?:  |$)",
                          self.good(verb, "--help").out, re.M)
        return dict(rows)

    def shell(self, text):
        """Output of bash, which must succeed."""
        path = f"{GQAC.parent}:/usr/bin:/bin"
        done = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True,
                              cwd=self.dir, check=False, env={"PATH": path, "HOME": str(self.dir)})
        self.assertEqual((done.returncode, done.stderr), (0, ""), text)
        return done.stdout

    def test_examples(self):
        """Two or three for each verb, none of which is a usage error."""
        for verb in self.verbs():
            text = self.good(verb, "--help").out
            lines = text.split("\nexamples:\n")[1].split("\n\n")[0].splitlines()
            self.assertIn(len(lines), (2, 3), verb)
            for line in lines:
                line = line.split("|")[-1]
                line = re.sub(r"^source <\((.*)\)$", r"\1", line.strip())
                words = shlex.split(re.sub(r"[<>]\S*", "", line))
                self.assertEqual(words[:2], ["gqac", verb])
                result = gqac(*words[1:], cwd=self.dir)
                self.assertIn(result.code, (0, 4, 5), str(result))

    def test_overview(self):
        """Each way to ask for the list of verbs prints it; so does a call without words, which is
        a usage error."""
        text = self.good("--help").out
        for words in ("-h",), ("help",), ("help", "help"), ("help", "--help"), ("--help", "help"):
            self.assertEqual(self.good(*words).out, text, words)
        bare = gqac()
        self.assertEqual((bare.code, bare.out), (2, text))

    def test_own_flags(self):
        """A flag that belongs to a verb is not also listed as a common one."""
        text = self.good("equiv", "--help").out
        self.assertEqual(text.count("  --threads "), 1)
        self.assertIn("  --threads N,N,...", text)
        self.assertEqual(self.good("man", "equiv").out.count("threads\\fR"), 1)

    def test_actions(self):
        """The help of cache describes each of its actions."""
        for verb in (("cache", "--help"), ("man", "cache")):
            text = self.good(*verb).out
            for action in ("ls DIR ", "info DIR ", "verify DIR ", "gc DIR ", "export DIR OTHER ",
                           "import DIR FILE ... "):
                self.assertIn(f"  {action}", text)

    def test_width(self):
        """Tables of flags fit a terminal of 100 columns; longer texts continue below their
        beginning."""
        for verb in self.verbs():
            text = self.good(verb, "--help").out.split("flags", 1)[1]
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, verb)
        self.assertIn("\n" + " " * 31 + "be repeated\n", self.good("run", "--help").out)

    def test_words(self):
        """Help uses the words of the glossary, and describes nothing that does not exist."""
        for verb in self.verbs():
            text = self.good(verb, "--help").out
            for word in ("behind", "not built", "whoever", "told", "tells"):
                self.assertNotRegex(text, rf"\b{word}\b", verb)

    def test_suggestions(self):
        """Names from other tools, and misspelled ones."""
        for verb, word, hint in (
                ("generate", "--temp", "--temperature;"), ("generate", "-temp", "--temperature;"),
                ("generate", "--top_k", "--top-k;"), ("generate", "--n-predict", "--new-tokens;"),
                ("generate", "-p", "--prompt;"), ("generate", "-c", "--context;"),
                ("generate", "--max-tokens=5", "--new-tokens;"), ("generate", "-t", "--threads;"),
                ("generate", "-f", "--prompt-file;"), ("generate", "--sed", "--seed;"),
                ("generate", "--no-cache", "--kv off;"), ("generate", "--json", "--format json;"),
                ("score", "--prompt", "--text;"), ("tokenize", "--prompt", "--text;"),
                ("compile", "--ouput", "--output;"), ("equiv", "--tokens-", "--tokens;"),
                ("generate", "-m", "gqac generate MODEL:"), ("run", "--model", "gqac run MODEL:"),
                ("generate", "--frobnicate", "gqac generate --help\n"),
                ("generate", "--x", "gqac generate --help\n"),
                ("generate", "--" + "temperature" * 9, "gqac generate"),
                ("test", "-m", "gqac test --help\n")):
            result = self.check(gqac(verb, LLAMA, word, "1"), 2, hint)
            self.assertEqual(result.out, "")
        for word, hint in (("generte", "gqac generate;"), ("tokenise", "gqac tokenize;"),
                           ("comp", "gqac compile;"), (LLAMA, "the verb comes first"),
                           ("frobnicate", "gqac --help")):
            self.check(gqac(word), 2, hint)

    def test_manual(self):
        """A page for each verb, with every flag, which groff accepts without a warning."""
        for verb in (None, *self.verbs()):
            page = self.good("man", *([verb] if verb else [])).out
            self.assertTrue(page.startswith(".TH GQAC"), page[:40])
            for flag in self.flags(verb) if verb else ():
                self.assertIn("\\fB\\-\\-" + flag.replace("-", "\\-") + "\\fR", page)
            if shutil.which("groff"):
                done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-c"], input=page,
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                text = re.sub(" +", " ", re.sub(r".\x08", "", done.stdout))
                self.assertIn(f"gqac-{verb} - " if verb else "gqac - ", text)
                for line in re.findall(r"^  (gqac .*)$", self.good(verb or "--help", "--help").out,
                                       re.M) if verb else ():
                    self.assertIn(line, text)
        self.check(gqac("man", "frobnicate"), 2, "frobnicate")

    def terminal(self, *words, path):
        """What a terminal shows for `gqac man WORDS`."""
        ours, its = os.openpty()
        child = subprocess.Popen([GQAC, "man", *words], stdin=its, stdout=its, stderr=its,
                                 env=harness.environment() | {"PATH": str(path)})
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        self.assertEqual(child.wait(60), 0, shown)
        return shown.decode()

    def test_manual_terminal(self):
        """man or mandoc shows the page; without them the source is printed with an explanation."""
        for name, words in (("man", "-l -"), ("mandoc", "-a")):
            (self.dir / name).mkdir()
            viewer = self.dir / name / name
            viewer.write_text('#!/bin/sh\necho "by $0 $*"\nexec /bin/sed -n "s/^.TH/title/p"\n')
            viewer.chmod(0o755)
            shown = self.terminal("equiv", path=viewer.parent)
            self.assertRegex(shown, f"by {viewer} {words}\r?\ntitle GQAC.-EQUIV 1 [^\n]*\r?\n$")
            viewer.write_text("#!/bin/sh\nexit 3\n")  # as does the man of systems without pages
            self.assertIn("`gqac equiv --help`", self.terminal("equiv", path=viewer.parent))
        shown = self.terminal(path=self.dir)
        self.assertIn(".TH GQAC", shown)
        self.assertIn("man or mandoc would show; `gqac --help`", shown)
        self.assertNotIn("mandoc", self.good("man").err)

    def complete(self, *words):
        """The completions of bash for the last of these words."""
        text = (f"source <(gqac completion); COMP_WORDS=({shlex.join(words)}); "
                f"COMP_CWORD={len(words) - 1}; _gqac; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return set(self.shell(text).split())

    def test_completion(self):
        """Verbs, flags, words, files and folders."""
        verbs = self.verbs()
        self.assertEqual(self.complete("gqac", ""), {*verbs, "--help"})
        self.assertEqual(self.complete("gqac", "ge"), {"generate"})
        for verb in verbs:
            self.assertEqual(self.complete("gqac", verb, "--"),
                             {"--help", *(f"--{flag}" for flag in self.flags(verb))})
        self.assertEqual(self.complete("gqac", "generate", "--te"), {"--temperature"})
        for flag, words in (("target", "cpu ref gpu"), ("format", "table json jsonl"),
                            ("kv", "contiguous paged windowed quantised quantised4 basic "
                             "int8 int4 off"), ("math", "model exact bf16"),
                            ("threads", ""), ("prompt", "")):
            self.assertEqual(self.complete("gqac", "generate", f"--{flag}", ""), {*words.split()})
        self.assertEqual(self.complete("gqac", "score", "--format", "=", "j"), {"json"})
        self.assertEqual(self.complete("gqac", "score", "--format", "="), {"json", "table"})
        self.assertIn("lower", self.complete("gqac", "compile", "--dump", ""))
        (self.dir / "model.onnx").touch()
        (self.dir / "folder").mkdir()
        both = {"model.onnx", "folder"}
        for words, want in ((("compile", ""), both), (("compile", "-o", ""), both),
                            (("generate", "m", "--prompt-file", ""), both),
                            (("run", "m", "--inputs", ""), {"folder"}),
                            (("score", "m", "--logits", "mo"), {"model.onnx"})):
            self.assertEqual(self.complete("gqac", *words), want, words)


if __name__ == "__main__":
    sys.exit(harness.main())
