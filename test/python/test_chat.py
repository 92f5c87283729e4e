#!/usr/bin/env python3
"""gqac chat: the conversation in the template, one session for all turns, JSON lines, signals.

    python test/python/test_chat.py

The prompt of every turn is rendered here by hand (textmodel.TEMPLATE is the same in Jinja),
tokenized by the library `tokenizers`, and passed to `gqac generate --ids`.
"""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import time

import harness
from harness import Case, GQAC, MODELS, gqac, write_ids
from textmodel import add_bos, copy_model, render, tokenizer


def await_that(condition, child):
    """Wait until a condition holds, or the child has ended."""
    while not condition() and child.poll() is None:
        time.sleep(0.001)


def notes_interrupts(child):
    """True if SIGINT has a handler, which it has not from the first SIGINT until the next turn
    begins."""
    with open(f"/proc/{child.pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1


def is_edited(leader):
    """True if the editor reads the terminal: it reads characters, not lines."""
    return not termios.tcgetattr(leader)[3] & termios.ICANON


class Chat(Case):
    """Conversations with one small model."""

    def setUp(self):
        super().setUp()
        self.model = copy_model(self.dir / "m")

    def chat(self, typed, *args, code=0, words=(), model=None, env=None):
        """A run with these bytes on stdin."""
        path = self.dir / "typed"
        path.write_bytes(typed if isinstance(typed, bytes) else typed.encode())
        with open(path, "rb") as stdin:
            more = ("-q",) if code else ()  # no banner before the error
            return self.check(gqac("chat", model or self.model, *args, *more, stdin=stdin, env=env),
                              code, *words)

    def turns(self, typed, *args, **more):
        """The JSON objects of all turns."""
        out = self.chat(typed, *args, "--format", "json", **more).out
        return [json.loads(line) for line in out.splitlines()]

    def test_turns(self):
        """Three turns: each answer equals that for the whole conversation, and reuses cached
        tokens."""
        told = "Be brief."
        asked = ("Hello there", "And \U0001F600 \"you\"?", "{{ bye }} {% end %}")
        found = self.turns("\n".join(asked), "--system", told, "-n", 9)
        self.assertEqual(len(found), 3)
        messages, cached = [("system", told)], []
        for question, turn in zip(asked, found):
            messages.append(("user", question))
            ids = tokenizer().encode(render(messages), add_special_tokens=False).ids
            alone = self.good("generate", self.model, "--ids", write_ids(self.dir / "i", ids),
                              "-n", 9, "--format", "json").json()
            for key in ("ids", "text", "finish_reason"):
                self.assertEqual(turn[key], alone[key])
            common = 0
            while common < min(len(cached), len(ids) - 1) and cached[common] == ids[common]:
                common += 1
            m = turn["metrics"]
            self.assertEqual(m["reused_tokens"], common)
            self.assertEqual(m["computed_tokens"], len(ids) - common + 8)
            cached = ids + turn["ids"][:-1]
            messages.append(("assistant", turn["text"]))
        self.assertGreater(found[2]["metrics"]["reused_tokens"],
                           found[1]["metrics"]["reused_tokens"])
        self.assertGreater(found[1]["metrics"]["reused_tokens"], 30)

    def test_system_variables(self):
        """A system message on the command line replaces those of environment variables."""
        file, other = self.dir / "system", self.dir / "other"
        file.write_text("Be brief.\n")
        other.write_text("Sing.")
        told = self.turns("a\n", "--system", "Be brief.", "-n", 4)[0]["ids"]
        for env, flag, value in (("GQAC_SYSTEM", "--system-file", file),
                                 ("GQAC_SYSTEM_FILE", "--system", "Be brief.")):
            found = self.turns("a\n", flag, value, "-n", 4, env={env: str(other)})
            self.assertEqual(found[0]["ids"], told)

    def test_no_post_processor(self):
        """The template writes the special tokens; the post-processor adds none."""
        want = [t["ids"] for t in self.turns("one\ntwo\n", "-n", 5)]
        found = self.turns("one\ntwo\n", "-n", 5, model=add_bos(copy_model(self.dir / "bos")))
        self.assertEqual([t["ids"] for t in found], want)

    def test_caches(self):
        """The same conversation without a cache, from an artefact, on two threads."""
        typed = "one\ntwo\nthree\n"
        flags = ("-n", 8, "--temperature", "0.9", "--seed", 4)
        want = [t["ids"] for t in self.turns(typed, *flags)]
        packed = self.dir / "m.gqac"
        self.good("compile", self.model, "-o", packed)
        self.model.rename(self.dir / "away")
        self.assertEqual([t["ids"] for t in self.turns(typed, *flags, model=packed)], want)
        for more in (("--kv", "off"), ("--threads", 2)):
            found = self.turns(typed, *flags, *more, model=packed)
            self.assertEqual([t["ids"] for t in found], want)
            if more[1] == "off":
                self.assertEqual({t["metrics"]["reused_tokens"] for t in found}, {0})

    def test_text(self):
        """Answers on stdout, one on each line; everything else on stderr."""
        typed = "one\ntwo"
        want = "".join(t["text"] + "\n" for t in self.turns(typed, "-n", 6))
        result = self.chat(typed, "-n", 6)
        self.assertEqual(result.out, want)
        self.assertRegex(result.err, r"^kv cache: contiguous \([^\n]*\)\n$")
        result = self.chat(typed, "-n", 6, "--metrics", "-q")
        self.assertEqual(result.out, want)
        self.assertEqual(result.err.count("tokens                reused "), 2)
        self.assertNotIn("reused 0  ", result.err.split("time to first token")[2])
        self.assertIn("step 6  id ", self.chat(typed, "-n", 6, "--log-steps").err)

    def test_lines(self):
        """Line ends, empty lines, long lines, empty input."""
        want = [t["ids"] for t in self.turns("one\ntwo\n", "-n", 4)]
        for typed in ("one\ntwo", "one\r\ntwo\r\n", "\none\n\n\r\ntwo\n\n"):
            self.assertEqual([t["ids"] for t in self.turns(typed, "-n", 4)], want)
        self.assertEqual(self.chat("", "-n", 4).out, "")
        self.assertEqual(self.chat("\n\n", "-n", 4).out, "")
        self.assertEqual(len(self.turns("x" * 500 + "\ny\n", "-n", 4)), 2)
        self.chat("x" * 10000 + "\n", "-n", 4, code=4)

    def test_words(self):
        """/help, /reset and /exit, alone on a line; any other line is a message."""
        first, second = self.turns("one\ntwo\n", "-n", 5, "--system", "x")
        typed = "one\n/help\ntwo\n/reset\none\n/exit\nthree\n"
        result = self.chat(typed, "-n", 5, "--system", "x", "--format", "json")
        found = [json.loads(line)["ids"] for line in result.out.splitlines()]
        self.assertEqual(found, [first["ids"], second["ids"], first["ids"]])
        for word in ("/reset ", "/exit ", "gqac: a new conversation\n"):
            self.assertIn(word, result.err)
        asked = ("/helpless", " /exit", "/exit now", "/no_think", "/")
        self.assertEqual(len(self.turns("\n".join(asked), "-n", 2)), len(asked))

    def test_json_lines(self):
        """--format jsonl: for each turn its tokens, then the object of --format json."""
        want = self.turns("one\ntwo\n", "-n", 5)
        lines = [json.loads(x) for x in self.chat("one\ntwo\n", "-n", 5, "--format",
                                                  "jsonl").out.splitlines()]
        self.assertEqual([x["ids"] for x in lines if "ids" in x], [x["ids"] for x in want])
        self.assertEqual([x["id"] for x in lines if "id" in x], sum((x["ids"] for x in want), []))

    def test_full(self):
        """A conversation that exceeds the context continues without its oldest turns, which is
        reported once."""
        words = ("one", "two", "three", "four", "five", "six")
        result = self.chat("".join(word + "\n" for word in words), "-n", 20, "--context", 120, "--format", "json",
                           "--system", "be short")
        said = [json.loads(line) for line in result.out.splitlines()]
        self.assertEqual(len(said), len(words))
        self.assertEqual(result.err.count("the oldest turns are dropped"), 1, result.err)
        self.assertIn("the context of 120 tokens is full", result.err)
        # the system message is kept, and the last answer equals that of a conversation without the
        # oldest turns
        pairs = [(("user", word), ("assistant", one["text"])) for word, one in zip(words, said)]
        answers = []
        for first in range(len(words)):
            left = [("system", "be short"), *(m for pair in pairs[first:] for m in pair)][:-1]
            ids = tokenizer().encode(render(left), add_special_tokens=False).ids
            done = gqac("generate", self.model, "--ids", write_ids(self.dir / "i", ids), "-n", 20, "--context", 120,
                        "--format", "json")
            answers.append(done.json()["ids"] if done.code == 0 else None)
        self.assertIn(said[-1]["ids"], answers[1:])
        quiet = self.chat("one\n" * 6, "-n", 20, "--context", 120, "-q")
        self.assertEqual(quiet.err, "")

    def test_bad_line(self):
        """An invalid line does not end the conversation: exit 4 after the last line."""
        want = [t["ids"] for t in self.turns("one\ntwo\n", "-n", 4)]
        for bad in (b"a\xff\n", b"x" * 10000 + b"\n"):
            result = self.chat(b"one\n" + bad + b"two\n", "-n", 4, "--format", "json", code=4)
            first, error, second = map(json.loads, result.out.splitlines())
            self.assertEqual([first["ids"], second["ids"]], want)
            self.assertEqual(list(error), ["error"])
            self.assertEqual(result.err.count("gqac: "), 1, result.err)

    def test_before_loading(self):
        """Missing parts of a model folder, and a context that is too long for the model, are
        reported before the model is read."""
        folder = copy_model(self.dir / "bare", template=None)
        (folder / "model.onnx").write_bytes(b"not a model")
        self.chat("x\n", model=folder, code=2, words=("template",))
        folder = copy_model(self.dir / "long")
        (folder / "model.onnx").write_bytes(b"not a model")
        self.chat("x\n", "--context", 641, model=folder, code=4, words=("--context 641", "640 positions"))
        folder = copy_model(self.dir / "tables", model={"context_length": 5000})
        self.chat("x\n", "--context", 641, model=folder, code=4, words=("--context 641", "640 positions"))

    def test_not_utf8(self):
        """Bytes that are not UTF-8, on stdin and in --system."""
        self.chat(b"a\xff\n", "-n", 4, code=4, words=("UTF-8",))
        self.chat("a\n", "--system", os.fsdecode(b"\xc3"), code=4, words=("UTF-8",))

    def test_control_characters(self):
        """Escape characters are ordinary text, and NUL is refused; JSON stays valid."""
        for typed in (b"\x1b[31m\x01\x7f\n", "\u2028\ufeff\U0010ffff\n".encode()):
            self.assertEqual(len(self.turns(typed, "-n", 6)), 1)
        self.chat(b"a\0b\n", "-n", 4, code=4, words=("byte 1 of the message is NUL",))
        (self.dir / "system").write_bytes(b"a\0b")
        self.chat("a\n", "--system-file", self.dir / "system", code=4, words=("byte 1 ", "NUL"))

    def test_missing_parts(self):
        """Without a template or a tokenizer: exit 2 with a hint."""
        bare = copy_model(self.dir / "bare", template=None)
        self.chat("x\n", model=bare, code=2, words=("template", "try"))
        blind = copy_model(self.dir / "blind", drop=("tokenizer.json",))
        self.chat("x\n", model=blind, code=2, words=("tokenizer", "try"))
        (bare / "genai_config.json").unlink()  # the first missing part is named
        self.chat("x\n", model=bare, code=5, words=("genai_config.json", "it contains", "try"))
        self.chat("x\n", model=MODELS / "llama" / "none", code=5)
        self.chat("x\n", "--prompt", "x", code=2, words=("--prompt",))
        self.chat("x\n", "--kv", "bogus", code=2, words=("contiguous",))

    def test_template_raises(self):
        """A message that the template rejects is exit 4 with its words; a template that cannot be
        parsed is exit 3."""
        folder = copy_model(self.dir / "r", template="{{ raise_exception('no system here') }}")
        self.chat("x\n", model=folder, code=4, words=("no system here",))
        folder = copy_model(self.dir / "s", template="{% for %}")
        self.chat("x\n", model=folder, code=3, words=("chat_template",))

    def start(self, *args, **more):
        """A conversation over pipes, in the background."""
        more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                **more}
        child = subprocess.Popen([GQAC, "chat", self.model, *map(str, args)], bufsize=0,
                                 env=harness.environment(), **more)
        self.addCleanup(lambda: (child.kill(), child.wait(), [
            f.close() for f in (child.stdin, child.stdout, child.stderr) if f]))
        return child

    def test_interrupt(self):
        """Ctrl-C ends the answer, and the next turn works; at the prompt it ends the program."""
        self.model = copy_model(self.dir / "endless", model={"eos_token_id": None})
        child = self.start("-n", 500, "--kv", "off", "--log-steps", "--format", "json")
        fcntl.fcntl(child.stderr, fcntl.F_SETPIPE_SZ, 4096)  # no answer ends before its log is read
        for line in (b"one\n", b"two\n"):
            child.stdin.write(line)
            while b"step 2 " not in child.stderr.readline():
                pass
            child.send_signal(signal.SIGINT)
            turn = json.loads(child.stdout.readline())
            self.assertEqual(turn["finish_reason"], "stop")
            self.assertLess(len(turn["ids"]), 400)
        await_that(lambda: notes_interrupts(child), child)
        self.assertIsNone(child.poll())
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), 0)

    def test_interrupt_in_a_prompt(self):
        """Ctrl-C during a prompt undoes the turn: the next ones are as if it had not happened."""
        long = b"word " * 380 + b"\n"
        self.model = harness.ROOT / "models" / "tiny-gqa"
        args = ("-n", 4, "--format", "json", "--target", "ref", "--temperature", "0")
        for _ in range(20):  # on a busy machine the prompt may end before this process runs again
            child = self.start(*args)
            self.assertIn(b"kv cache", child.stderr.readline())
            child.stdin.write(b"one\n")
            first = json.loads(child.stdout.readline())
            child.stdin.write(long)
            harness.await_work(child, 2)
            child.send_signal(signal.SIGINT)
            ready = select.select([child.stdout, child.stderr], [], [])[0]
            if child.stdout not in ready:
                break
        self.assertIn(b"gqac: interrupted", child.stderr.readline())
        child.stdin.write(b"two\n")
        child.stdin.close()
        second = json.loads(child.stdout.readline())
        self.assertEqual(child.wait(60), 0)
        child = self.start(*args)
        child.stdin.write(b"one\ntwo\n")
        child.stdin.close()
        turns = [json.loads(line) for line in child.stdout.read().splitlines()]
        self.assertEqual([turn["ids"] for turn in turns], [first["ids"], second["ids"]])

    def test_terminal(self):
        """A prompt on a terminal, and the answer after a line is typed."""
        leader, follower = pty.openpty()
        child = self.start("-n", 3, "-q", stdin=follower)
        os.close(follower)
        self.assertEqual(child.stderr.read(2), b"> ")
        os.write(leader, b"hi\n")
        self.assertEqual(child.stderr.read(2), b"> ")
        os.write(leader, b"\x04")
        self.assertEqual(child.wait(20), 0)
        self.assertTrue(child.stdout.read().endswith(b"\n"))
        os.close(leader)

    def test_editor(self):
        """On a terminal, with libedit, a line can be edited and earlier lines can be recalled."""
        linked = subprocess.run(["ldd", GQAC], capture_output=True, text=True, check=False).stdout
        if "libedit" not in linked:
            # Reason of the skip: the library is optional; without it lines cannot be edited.
            self.skipTest("built without libedit")
        leader, follower = pty.openpty()
        child = self.start("-n", 3, "--format", "json", stdin=follower, stderr=follower)
        os.close(follower)
        timer = threading.Timer(60, child.kill)
        timer.start()
        self.addCleanup(timer.cancel)

        def turn(keys):
            await_that(lambda: is_edited(leader), child)
            os.write(leader, keys)
            return json.loads(child.stdout.readline())["ids"]
        want = [t["ids"] for t in self.turns("ab\u00e4d\nabd\nab\u00e4d\n", "-n", 3)]
        other = self.turns("abd\n", "-n", 3)[0]["ids"]
        self.assertEqual(turn("ad\x1b[Db\u00e4\r".encode()), want[0])
        self.assertEqual(turn("abdx\x7f\r".encode()), want[1])
        self.assertEqual(turn(b"\x1b[A\x1b[A\r"), want[2])
        self.assertEqual(turn(b"/reset\rab\xc3\xffd\r"), other)
        await_that(lambda: is_edited(leader), child)
        os.write(leader, b"half a line")
        seen = b""
        while b"half a line" not in seen:  # the editor echoes it after the prompt
            seen += os.read(leader, 4096)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), 0)
        os.close(leader)

    def test_closed_pipe(self):
        """A reader that closes the pipe: exit 5."""
        child = self.start("-n", 4)
        child.stdout.close()
        child.stdin.write(b"one\ntwo\n")
        self.assertEqual(child.wait(20), 5)


if __name__ == "__main__":
    sys.exit(harness.main())
