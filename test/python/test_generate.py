#!/usr/bin/env python3
"""gqac generate: flags, streams, greedy and sampled answers, logs, metrics, caches, signals.

    python test/python/test_generate.py

The expected results come from `gqac score --logits` for prompt and answer (the likeliest token and
its probability) and from the library `tokenizers` (the prompt's ids).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

import harness
from decoders import Decoder
from harness import Case, GQAC, MODELS, gqac, read_ids, write_ids
from test_insert_kv import strip
from textmodel import copy_model, steps, tokenizer

LLAMA = MODELS / "llama"
PROMPT = "Once upon a time"


def rename(folder, names):
    """Renames inputs and outputs of the graph in a model folder, and records this in its config."""
    graph = onnx.load(folder / "model.onnx", load_external_data=False)
    table = {old.replace("%d", str(i)): new.replace("%d", str(i))
             for old, new in names.items() for i in range(2)}
    for value in (*graph.graph.input, *graph.graph.output):
        value.name = table.get(value.name, value.name)
    for node in graph.graph.node:
        for words in (node.input, node.output):
            words[:] = [table.get(word, word) for word in words]
    onnx.save(graph, folder / "model.onnx")
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    for part in ("inputs", "outputs"):
        rows = config["model"]["decoder"][part]
        rows.update({key: names[name] for key, name in rows.items()})
    path.write_text(json.dumps(config))


class Generating(Case):
    """Runs of generate."""

    def said(self, *args, model=LLAMA, prompt=PROMPT, **more):
        """The JSON of a run that must succeed."""
        args = ("--prompt", prompt, *args) if prompt is not None else args
        found = self.good("generate", model, *args, "--format", "json", **more).json()
        self.assertEqual(set(found) - {"logprobs"}, {"ids", "text", "finish_reason", "metrics"})
        return found

    def fails(self, code, *args, words=()):
        """These arguments end with that exit code, reported only on stderr; -q omits the banner."""
        result = self.check(gqac("generate", *args, "-q"), code, *words)
        self.assertEqual(result.out, "", str(result))

    def usage(self, *args, words=()):
        """These arguments are a usage error."""
        self.fails(2, *args, words=words)

    def logits(self, ids, model=LLAMA):
        """Logits after every token, by `score`."""
        out = self.dir / "logits.npy"
        self.good("score", model, "--ids", write_ids(self.dir / "ids", ids), "--logits", out)
        return np.load(out).astype(np.float64)


class WithoutCache(Generating):
    """Models without a cache: with --kv off they compute all ids every time."""

    NAMES = ("opt-no-cache", "dynamo-mistral-no-cache")

    def setUp(self):
        super().setUp()
        self.ids = [i * 7 % 50 + 3 for i in range(17)]
        self.file = write_ids(self.dir / "ids", self.ids)

    def model(self, name):
        """One of test/traced."""
        return harness.ROOT / "test" / "traced" / name / "model.onnx"

    def test_generate(self):
        """The likeliest ids by `score`, and those of the same model with a cache; also for
        artefacts."""
        for name in self.NAMES:
            model, ids = self.model(name), list(self.ids)
            for _ in range(4):
                out = self.dir / "logits.npy"
                self.good("score", model, "--kv", "off", "--logits", out, "--ids",
                          write_ids(self.dir / "more", ids))
                ids.append(int(np.argmax(np.load(out)[-1])))
            cached, packed = self.dir / "cached.onnx", self.dir / "packed.gqac"
            self.good("rewrite", model, "--pass", "insert-kv", "-o", cached)
            self.good("compile", model, "--stateless", "-o", packed)
            for words in ((model, "--kv", "off"), (packed, "--kv", "off"), (cached,)):
                found = self.said("--ids", self.file, "-n", 4, *words[1:], model=words[0],
                                  prompt=None)
                self.assertEqual(found["ids"], ids[-4:], (name, words))
                self.assertEqual(found["metrics"]["computed_tokens"],
                                 sum(range(17, 21)) if "off" in words else 20)

    def test_score(self):
        """Chunks are computed together with all ids before them, with the same bits."""
        for name in (*self.NAMES, None):
            model = self.model(name) if name else LLAMA
            tail, rows = ("--ids", self.file, "--kv", "off", "--logits"), []
            for i, splits in enumerate(((), ("--splits", "4,1,7"))):
                self.good("score", model, *tail, self.dir / f"{i}.npy", *splits)
                rows.append(np.load(self.dir / f"{i}.npy"))
            self.assertEqual(rows[0].tobytes(), rows[1].tobytes(), name)
            folder = self.dir / "in"
            folder.mkdir(exist_ok=True)
        np.save(folder / "input_ids.npy", np.array([self.ids]))
        np.save(folder / "attention_mask.npy", np.ones((1, 17), np.int64))
        self.good("run", self.model("opt-no-cache"), "--inputs", folder, "--output", folder / "out")
        self.good("score", self.model("opt-no-cache"), *tail, self.dir / "0.npy")
        self.assertEqual(np.load(folder / "out" / "logits.npy")[0].tobytes(),
                         np.load(self.dir / "0.npy").tobytes())

    def test_not_causal(self):
        """If the rows of a model depend on later tokens, chunks of `score` are refused."""
        for causal in (1, 0):
            model = strip(Decoder("attention").model())
            for node in model.graph.node:
                for attribute in node.attribute:
                    if attribute.name == "is_causal":
                        attribute.i = causal
            onnx.save(model, self.dir / "m.onnx")
            run = ("score", self.dir / "m.onnx", "--ids", self.file, "--kv", "off")
            told = self.good(*run, "--splits", "4,1,7").err
            self.assertEqual("position 0 change with the tokens after it" in told, not causal)
            self.assertEqual(self.good(*run, "--splits", "4,1,7", "-q").err, "")
            self.assertEqual(self.good(*run).err, "")

    def test_refused(self):
        """Refusals have a hint; also those of --kv off."""
        tail, model = ("--ids", self.file), self.model("opt-no-cache")
        whole = self.good("score", model, *tail, "--kv", "off").out
        self.assertEqual(self.good("score", model, *tail).out, whole)  # it needs no cache
        for verb, flags in (("generate", ()), ("score", ("--kv", "contiguous"))):
            self.check(gqac(verb, model, *tail, *flags), 3, "no KV cache", "--kv off", "insert-kv")
            whisper = harness.ROOT / "test" / "traced" / "whisper" / "decoder_model.onnx"
            self.check(gqac(verb, whisper, *tail, "--kv", "off"), 3, "'encoder_hidden_states'")
        self.check(gqac("equiv", model), 3, "no KV cache", "nothing to prove")
        for verb in ("generate", "score"):
            for name, words in (("scores", ("'logits'", "scores")), ("logits", ("[17,", "[B,S,V]"))):
                made = onnx.load(model)
                graph, rows = made.graph, numpy_helper.from_array(np.array([17, -1]), "rows")
                graph.initializer.append(rows)
                graph.node.append(helper.make_node("Reshape", ["all", "rows"], [name]))
                for node in graph.node:
                    node.output[:] = ["all" if n == "logits" and node.op_type != "Reshape" else n
                                      for n in node.output]
                vocabulary = graph.output[0].type.tensor_type.shape.dim[2].dim_value
                graph.output[0].CopyFrom(helper.make_tensor_value_info(name, 1, [17, vocabulary]))
                onnx.save(made, self.dir / "other.onnx")
                self.check(gqac(verb, self.dir / "other.onnx", *tail, "--kv", "off"), 3, *words)
        self.check(gqac("equiv", model, "--kv", "off"), 2, "--kv off")
        self.check(gqac("score", model, *tail, "--kv", "bogus"), 2, "bogus", "contiguous")
        self.check(gqac("score", model, *tail, "--kv", "paged"), 3, "no KV cache")
        # a cache that no sequence supports keeps its own reason
        onnx.save(Decoder("read_elsewhere").model(), self.dir / "elsewhere.onnx")
        self.check(gqac("score", self.dir / "elsewhere.onnx", *tail, "--kv", "off"), 3,
                   "not a KV cache that an attention op reads")


class Flags(Generating):
    """What the command line accepts."""

    def test_kv(self):
        """I26, I27: every position of --kv, and the banner: a word before MODEL is its value only
        if it is a kind."""
        tail = ("--prompt", "x", "-n", "1")
        for words, kind in (((), "contiguous"), (("--kv", LLAMA), "contiguous"),
                            ((LLAMA, "--kv"), "contiguous"), (("--kv", "off", LLAMA), "off"),
                            ((LLAMA, "--kv", "off"), "off"), (("--kv=off", LLAMA), "off"),
                            (("--kv", "basic", LLAMA), "contiguous"),
                            (("--kv=basic", LLAMA), "contiguous"),
                            (("--kv", " basic ", LLAMA), "contiguous"),
                            ((LLAMA, "--kv=\toff "), "off"),
                            ((LLAMA, "--kv", "contiguous"), "contiguous"),
                            (("--kv", "paged", LLAMA), "paged"),
                            ((LLAMA, "--kv=windowed"), "windowed"),
                            ((LLAMA, "--kv", "quantised"), "quantised"),
                            (("--kv", "int4", LLAMA), "quantised4")):
            with self.subTest(words=list(map(str, words))):
                words = words if LLAMA in words else (LLAMA, *words)
                result = self.good("generate", *words, *tail)
                self.assertRegex(result.err, f"^kv cache: {kind} \\(.*\\)\n$")
                last = self.good("generate", *tail, *words)  # MODEL at the end
                self.assertEqual((last.err, last.out), (result.err, result.out))
        for words in ((LLAMA, "--kv", "bogus"), ("--kv=bogus", LLAMA), (LLAMA, "--kv="),
                      (LLAMA, "--kv=Off"), (LLAMA, "--kv", "heap"), (LLAMA, "--kv", "ba sic"), (LLAMA, "--kv", LLAMA)):
            self.usage(*words, *tail, words=("contiguous", "off"))
        self.usage("--kv", "bogus", LLAMA, *tail, words=("llama",))  # two operands
        self.check(gqac("generate", "--kv", "bogus", *tail), 5, "bogus")
        self.good("generate", LLAMA, *tail, env={"GQAC_KV": "off"})
        self.check(gqac("generate", LLAMA, *tail, env={"GQAC_KV": "bogus"}), 2, "bogus")

    def test_prompt_or_ids(self):
        """Exactly one is needed."""
        self.usage(LLAMA, words=("--prompt", "--ids"))
        self.usage(LLAMA, "--prompt", "x", "--ids", LLAMA / "ref" / "ids.txt", words=("cannot be combined",))
        self.usage("--prompt", "x", words=("MODEL",))
        self.check(gqac("generate", LLAMA, "--ids", self.dir / "none"), 5, "none")
        self.check(gqac("generate", self.dir / "none", "--prompt", "x"), 5, "none")

    def test_prompt_from_a_file(self):
        """--prompt-file and --prompt - are like --prompt, except for the newline at the end."""
        want = self.said("-n", 4)["ids"]
        path = self.dir / "prompt.txt"
        for end in ("", "\n", "\r\n"):
            path.write_bytes((PROMPT + end).encode())
            with open(path, "rb") as typed:
                found = self.said("--prompt", "-", "-n", 4, prompt=None, stdin=typed)
            self.assertEqual(found["ids"], want)
            for args, env in ((("--prompt-file", path), {}), ((), {"GQAC_PROMPT_FILE": str(path)})):
                found = self.said(*args, "-n", 4, prompt=None, env=env)
                self.assertEqual(found["ids"], want)
        other = self.said("-n", 4, prompt=PROMPT + "\n")["ids"]
        self.assertNotEqual(other, want)
        path.write_text(PROMPT + "\n\n")
        self.assertEqual(self.said("--prompt-file", path, "-n", 4, prompt=None)["ids"], other)
        self.assertEqual(self.said("-n", 4, env={"GQAC_PROMPT_FILE": "nothere"})["ids"], want)
        self.usage(LLAMA, "--prompt", "x", "--prompt-file", path, words=("cannot be combined",))
        self.usage(LLAMA, "--ids", path, "--prompt-file", path, words=("cannot be combined",))
        self.fails(5, LLAMA, "--prompt-file", self.dir / "nothere", words=("nothere",))
        self.fails(4, LLAMA, "--prompt", "-", words=("no tokens",))  # stdin is empty
        for data, word in ((b"a\0b", "byte 1 "), (b"a\xff", "UTF-8")):
            path.write_bytes(data)
            self.fails(4, LLAMA, "--prompt-file", path, words=(word,))

    def test_values(self):
        """Numbers that no flag accepts."""
        for flag, values in (("-n", ("-1", "x", "1.5", "")), ("--top-k", ("-1", "2.5", "x")),
                             ("--temperature", ("-1", "x", "nan", "inf", "", "0x1", " 1", "1,5")),
                             ("--top-p", ("0", "1.5", "-0.1", "nan", "x")),
                             ("--min-p", ("-0.1", "1.5", "x")), ("--seed", ("-1", "x", "0.5")),
                             ("--repetition-penalty", ("0", "-1", "x", "inf")),
                             ("--context", ("0", "-5", "x")), ("--stop", ("",))):
            for value in values:
                with self.subTest(flag=flag, value=value):
                    self.usage(LLAMA, "--prompt", "x", flag, value)
            self.assertEqual(gqac("generate", LLAMA, "--prompt", "x", flag).code, 2)
        for flags in (("--top-p", "1.5"), ("--temperature", "-1"), ("--logit-bias", "9999=1")):
            result = gqac("generate", LLAMA, "--prompt", "x", *flags)  # nothing is printed before
                                                                       # the error
            self.assertRegex(result.err, "^gqac: ", str(result))
            self.assertNotIn("request 0", result.err)
        result = gqac("generate", LLAMA, "--prompt", "Once upon", "--context", 3)
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("try:   shorten the prompt, or raise --context (the", result.err)
        self.assertNotIn("request 0", result.err)
        self.usage(LLAMA, "--prompt", "x", "--metrics=1")
        self.usage(LLAMA, "--prompt", "x", "--system", "y", words=("--system",))

    def test_help(self):
        """Every flag is in the help."""
        out = self.good("generate", "--help").out
        for flag in ("prompt", "ids", "new-tokens", "temperature", "top-k", "top-p", "min-p",
                     "seed", "stop", "kv", "context", "metrics", "log-steps", "repetition-penalty", "presence-penalty",
                     "frequency-penalty", "logit-bias", "top-logprobs", "no-parse-special", "speculate",
                     "draft"):
            self.assertIn(f"--{flag} ", out)
        self.assertIn("-n, --new-tokens N ", out)


class Greedy(Generating):
    """The likeliest token, and related behaviour."""

    def test_likeliest(self):
        """Each id is the most likely by the logits of `score`; the log has its probability."""
        prompt = tokenizer().encode(PROMPT).ids
        result = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 12, "--log-steps",
                           "--format", "json")
        ids = result.json()["ids"]
        rows = self.logits(prompt + ids)[len(prompt) - 1:-1]
        self.assertEqual(ids, rows.argmax(1).tolist())
        odds = np.exp(rows - rows.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        logged = steps(result.err)
        self.assertEqual([s[0] for s in logged], list(range(1, 13)))
        self.assertEqual([s[1] for s in logged], ids)
        self.assertEqual([s[3] for s in logged], ["prefill"] + ["decode"] * 11)
        for i, s in enumerate(logged):
            self.assertAlmostEqual(s[2], 100 * odds[i, ids[i]], delta=0.006)

    def test_text(self):
        """I24: the text is that of the ids, streamed and whole; logs hold its pieces."""
        for prompt in (PROMPT, "é", "\U0001F600 {\"a\": 1}", "\t\x01\x7f"):
            result = self.good("generate", LLAMA, "--prompt", prompt, "-n", 40, "--log-steps")
            found = self.said("-n", 40, prompt=prompt)
            text = tokenizer().decode(found["ids"])
            self.assertEqual(found["text"], text)
            self.assertEqual(result.out, text + "\n")
            self.assertEqual("".join(s[4] for s in steps(result.err)), text)

    def test_doubtful_folders(self):
        """compile reports that there is no tokenizer, and which ids of eos_token_id the model
        lacks."""
        model = {"vocab_size": 0, "eos_token_id": [2, 9999]}
        folder = copy_model(self.dir / "ends", model=model)
        words = "eos_token_id 9999: the model has only 258 ids"
        self.assertIn(words, self.good("compile", folder, "-o", self.dir / "a.gqac").err)
        self.assertIn(words, self.good("generate", folder, "--prompt", "a", "-n", "1").err)
        self.assertNotIn("eos_token_id 2:", self.good("generate", folder, "--prompt", "a", "-n", "1").err)
        self.assertNotIn("positions", self.good("generate", folder, "--prompt", "a", "-n", "1").err)
        far = copy_model(self.dir / "far", model={"context_length": 5000})
        words = "context_length is 5000, but a sequence has at most "
        self.assertIn(words, self.good("compile", far, "-o", self.dir / "c.gqac").err)
        self.assertIn(words, self.good("generate", far, "--prompt", "a", "-n", "1").err)
        self.assertEqual(self.good("generate", far, "--prompt", "a", "-n", "1", "-q").err, "")
        foreign = copy_model(self.dir / "foreign")
        shutil.copy(harness.ROOT / "models/tiny-gqa/tokenizer.json", foreign)
        words = "the tokenizer has ids that the model does not have (258 and more)"
        self.assertIn(words, self.good("generate", foreign, "--prompt", "a", "-n", "1").err)
        self.assertNotIn("the tokenizer", self.good("generate", folder, "--prompt", "a", "-n", "1").err)
        bare = copy_model(self.dir / "no-tokenizer", drop=("tokenizer.json",), template=None)
        self.assertIn("there is no tokenizer", self.good("compile", bare, "-o", self.dir / "b.gqac").err)

    def test_ids_as_given(self):
        """--ids with the ids of a prompt is like --prompt; without a tokenizer ids are printed."""
        path = write_ids(self.dir / "ids.txt", tokenizer().encode(PROMPT).ids)
        want = self.said("-n", 6)
        found = self.said("--ids", path, "-n", 6, prompt=None)
        self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]))
        bare = copy_model(self.dir / "bare", drop=("tokenizer.json",), template=None)
        result = self.good("generate", bare, "--ids", path, "-n", 6, "--log-steps")
        self.assertEqual(list(map(int, result.out.split())), want["ids"])
        self.assertTrue(result.out.endswith("\n"))
        self.assertEqual([s[1] for s in steps(result.err)], want["ids"])
        self.assertEqual(self.said("--ids", path, "-n", 6, prompt=None, model=bare)["text"], "")
        self.usage(bare, "--prompt", "x", words=("tokenizer",))
        self.usage(bare, "--ids", path, "--stop", "x", words=("tokenizer",))
        for bad in (258, -1, 1 << 40):
            self.fails(4, LLAMA, "--ids", write_ids(self.dir / "bad", [1, bad]), words=(str(bad),))

    def test_none(self):
        """No new tokens; no prompt."""
        found = self.said("-n", 0)
        self.assertEqual((found["ids"], found["text"], found["finish_reason"]), ([], "", "length"))
        self.assertEqual(self.good("generate", LLAMA, "--prompt", "x", "-n", 0).out, "\n")
        self.fails(4, LLAMA, "--prompt", "", words=("no tokens",))

    def test_utf8(self):
        """A prompt that is not UTF-8 is exit 4."""
        self.fails(4, LLAMA, "--prompt", os.fsdecode(b"a\xff"), words=("UTF-8",))
        self.fails(4, LLAMA, "--prompt", "x", "--stop", os.fsdecode(b"a\xff"), words=("UTF-8",))

    def test_eos(self):
        """I23, I24: an end-of-text id ends the text, is included in the ids and has a line of its
        own."""
        ids = self.said("-n", 8)["ids"]
        eos = next(i for n, i in enumerate(ids) if n > 1 and i not in ids[:n])
        cut = ids[:ids.index(eos) + 1]
        folder = copy_model(self.dir / "m", model={"eos_token_id": [257, eos]})
        result = self.good("generate", folder, "--prompt", PROMPT, "--log-steps", "--format",
                           "json")
        found = result.json()
        self.assertEqual((found["ids"], found["finish_reason"]), (cut, "eos"))
        self.assertEqual(found["text"], tokenizer().decode(cut[:-1]))
        self.assertEqual([line for line in result.err.splitlines() if line.startswith("eos")],
                         [f"eos  step {len(cut)}  id {eos}"])
        self.assertEqual(len(steps(result.err)), len(cut))

    def test_stop(self):
        """A stop text is not part of the text; there may be several, and they may cross tokens."""
        whole = self.said("-n", 120)["text"]
        plain = [i for i in range(2, len(whole) - 3) if "\ufffd" not in whole[i:i + 2]]
        self.assertTrue(plain)
        at = plain[0]
        stop = whole[at:at + 2]
        want = whole[:whole.index(stop)]
        for flags in (("--stop", stop), ("--stop", "no such text", "--stop", stop)):
            found = self.said("-n", 120, *flags)
            self.assertEqual((found["text"], found["finish_reason"]), (want, "stop"))
            self.assertEqual(self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 120,
                                       *flags).out, want + "\n")

    def test_penalty(self):
        """The repetition penalty of the flag and of the config also applies without sampling."""
        prompt = tokenizer().encode(PROMPT).ids
        found = self.said("-n", 10, "--repetition-penalty", "1.7")["ids"]
        rows = self.logits(prompt + found)[len(prompt) - 1:-1]
        for i, row in enumerate(rows):
            before = sorted(set(prompt + found[:i]))
            row[before] = np.where(row[before] > 0, row[before] / 1.7, row[before] * 1.7)
            self.assertEqual(found[i], row.argmax())
        self.assertNotEqual(found, self.said("-n", 10)["ids"])
        folder = copy_model(self.dir / "m", search={"repetition_penalty": 1.7})
        self.assertEqual(self.said("-n", 10, model=folder)["ids"], found)
        self.assertEqual(self.said("-n", 10, "--repetition-penalty", "1", model=folder)["ids"],
                         self.said("-n", 10)["ids"])

    def test_bias(self):
        """Ids whose logits are raised, or that are excluded; and invalid biases."""
        plain = self.said("-n", 6)["ids"]
        banned = self.said("-n", 6, "--logit-bias", f"{plain[0]}=-inf")["ids"]
        self.assertNotIn(plain[0], banned)
        self.assertEqual(self.said("-n", 6, "--logit-bias", "9=1e3", "--logit-bias", "9=-1e3")
                         ["ids"], plain)
        self.assertEqual(self.said("-n", 6, "--logit-bias", "9=1e3")["ids"], [9] * 6)
        for word in ("9", "=3", "x=1", "9=", "9=x", "-1=2", "9=nan", "9=inf", "9=1 "):
            self.usage(LLAMA, "--prompt", "x", "--logit-bias", word, words=("--logit-bias",))
        self.fails(4, LLAMA, "--prompt", "x", "--logit-bias", "99999999=1", words=("99999999",))

    def test_answer_penalties(self):
        """Compared with the logits of `score`: penalties for tokens of the answer, not of the
        prompt."""
        ids = [i * 5 % 40 + 3 for i in range(12)]
        file = write_ids(self.dir / "p", ids)
        for presence, frequency in ((2, 0), (0, 1), (0.7, 0.4), (-1, 0)):
            found = self.said("--ids", file, "-n", 8, "--presence-penalty", presence,
                              "--frequency-penalty", frequency, prompt=None)["ids"]
            rows = self.logits(ids + found)
            for at, new in enumerate(found):
                row = rows[len(ids) + at - 1].copy()
                for one in set(found[:at]):
                    row[one] -= presence + frequency * found[:at].count(one)
                self.assertEqual(int(row.argmax()), new, (presence, frequency, at))

    def test_top_logprobs(self):
        """For each token and for the likeliest ones, from the logits of `score`."""
        ids = [i * 5 % 40 + 3 for i in range(12)]
        file = write_ids(self.dir / "p", ids)
        said = self.said("--ids", file, "-n", 5, "--top-logprobs", 3, "--seed", 4, prompt=None)
        rows = self.logits(ids + said["ids"])
        self.assertEqual([one["id"] for one in said["logprobs"]], said["ids"])
        for at, one in enumerate(said["logprobs"]):
            row = rows[len(ids) + at - 1]
            logs = row - row.max() - np.log(np.exp(row - row.max()).sum())
            best = np.argsort(-logs, kind="stable")[:3]
            self.assertEqual([top["id"] for top in one["top"]], best.tolist())
            for top in (one, *one["top"]):
                self.assertAlmostEqual(top["logprob"], logs[top["id"]], places=5)
        self.assertNotIn("logprobs", self.said("-n", 2))

    def test_special_in_prompt(self):
        """A special token spelled in the prompt is text if this is requested."""
        text = "<s>a</s>"
        for flags, plain in (((), False), (("--no-parse-special",), True)):
            oracle = tokenizer()
            oracle.encode_special_tokens = plain
            want = oracle.encode(text).ids
            ids = self.said("--ids", write_ids(self.dir / "p", want), "-n", 4, prompt=None)
            said = self.said("-n", 4, *flags, prompt=text)
            self.assertEqual(said["ids"], ids["ids"])
            self.assertEqual(said["metrics"]["computed_tokens"],
                             ids["metrics"]["computed_tokens"])

    def test_room(self):
        """--context, and context_length and max_length of the config, limit an answer."""
        n = len(tokenizer().encode(PROMPT).ids)
        self.fails(4, LLAMA, "--prompt", PROMPT, "--context", n - 1, words=("context",))
        found = self.said("-n", 30, "--context", n + 5)
        self.assertEqual(found["finish_reason"], "length")
        self.assertEqual(len(found["ids"]), 5)
        short = copy_model(self.dir / "short", model={"context_length": n + 5})
        self.assertEqual(self.said("-n", 30, model=short)["ids"], found["ids"])
        limit = copy_model(self.dir / "limit", search={"max_length": n + 5})
        self.assertEqual(self.said(model=limit)["ids"], self.said("-n", 5)["ids"])
        self.assertEqual(len(self.said("-n", 7, model=limit)["ids"]), 7)
        least = copy_model(self.dir / "least", search={"min_length": n + 20},
                           model={"eos_token_id": self.said("-n", 1)["ids"][0]})
        self.assertGreater(len(self.said("-n", 30, model=least)["ids"]), 19)


class Sampled(Generating):
    """Random draws."""

    HOT = ("-n", 20, "--temperature", "1.3", "--top-k", "0", "--top-p", "1")

    def test_seed(self):
        """Equal seeds give equal answers with any threads and caches; different seeds give
        different answers."""
        want = self.said(*self.HOT, "--seed", 5)
        for more in (("--threads", 2), ("--threads", 3, "--kv", "off"), ("--kv",),
                     ("--context", 500), ("--min-p", "0")):
            found = self.said(*self.HOT, "--seed", 5, *more)
            self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]), more)
        answers = {tuple(self.said(*self.HOT, "--seed", s)["ids"]) for s in range(4)}
        self.assertEqual(len(answers), 4)
        self.assertEqual(self.said(*self.HOT)["ids"], self.said(*self.HOT, "--seed", 0)["ids"])

    def test_greedy_forms(self):
        """Settings that leave only one token give the greedy answer."""
        greedy = self.said("-n", 12)["ids"]
        for flags in (("--temperature", "0"), ("--temperature", "0", "--seed", "9", "--top-k", 40),
                      ("--top-k", "1"), ("--min-p", "1"), ("--top-p", "1e-9"),
                      ("--temperature", "0.001")):
            self.assertEqual(self.said("-n", 12, *flags)["ids"], greedy, flags)
        self.assertNotEqual(self.said("-n", 12, "--temperature", 2, "--seed", 1)["ids"], greedy)

    def test_config(self):
        """`search` in the config is the default; a flag replaces one of its settings."""
        search = {"do_sample": True, "temperature": 1.4, "top_k": 30, "top_p": 0.95,
                  "repetition_penalty": 1.2}
        folder = copy_model(self.dir / "m", search=search)
        flags = {"--temperature": 1.4, "--top-k": 30, "--top-p": 0.95, "--repetition-penalty": 1.2,
                 "--seed": 0}
        words = [str(w) for pair in flags.items() for w in pair]
        want = self.said("-n", 16, *words)["ids"]
        self.assertEqual(self.said("-n", 16, model=folder)["ids"], want)
        self.assertNotEqual(want, self.said("-n", 16)["ids"])
        flags["--top-k"] = 4
        words = [str(w) for pair in flags.items() for w in pair]
        self.assertEqual(self.said("-n", 16, "--top-k", 4, model=folder)["ids"],
                         self.said("-n", 16, *words)["ids"])
        self.assertEqual(self.said("-n", 16, "--temperature", 0, model=folder)["ids"],
                         self.said("-n", 16, "--repetition-penalty", "1.2")["ids"])

    def test_top_k(self):
        """Every id is among the k likeliest."""
        prompt = tokenizer().encode(PROMPT).ids
        ids = self.said("-n", 30, "--top-k", 3, "--temperature", 5, "--seed", 2)["ids"]
        rows = self.logits(prompt + ids)[len(prompt) - 1:-1]
        ranks = [(row > row[i]).sum() for row, i in zip(rows, ids)]
        self.assertLess(max(ranks), 3)
        self.assertEqual(set(ranks), {0, 1, 2})


class Caches(Generating):
    """With a cache, without one, from an artefact: the same answer."""

    def test_same(self):
        """I28: every model, off = contiguous."""
        names = ("llama", "llama-fp16", "llama-int4-acc4", "mistral", "phi3", "gemma2")
        for name in names if not harness.FULL else harness.TOLERANCE:
            folder = MODELS / name
            prompt = "A line of some forty characters, or so.." if name == "phi3" else PROMPT
            for flags in (("-n", 28), ("-n", 28, "--temperature", 1, "--seed", 3)):
                want = self.said(*flags, "--kv", "off", model=folder, prompt=prompt)
                found = self.said(*flags, model=folder, prompt=prompt)
                self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]), name)
                self.assertGreater(want["metrics"]["computed_tokens"],
                                   found["metrics"]["computed_tokens"])

    def test_artefact(self):
        """An artefact of a folder needs no other file."""
        folder = copy_model(self.dir / "m", search={"do_sample": True, "temperature": 1.5})
        packed = self.dir / "packed.gqac"
        self.good("compile", folder, "-o", packed)
        want = self.said("-n", 12, model=folder)
        folder.rename(self.dir / "away")
        found = self.said("-n", 12, model=packed)
        self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]))
        again = self.dir / "again.gqac"
        self.good("compile", packed, "-o", again)
        packed.unlink()
        self.assertEqual(self.said("-n", 12, model=again)["ids"], want["ids"])
        self.good("score", again, "--ids", LLAMA / "ref" / "ids.txt")
        self.good("equiv", again, "--tokens", 4)
        self.good("inspect", again, "--verify")

    def test_names(self):
        """Inputs and outputs with other names, listed in the config: every verb, also with
        artefacts."""
        folder = copy_model(self.dir / "m")
        rename(folder, {"input_ids": "tokens", "logits": "scores", "attention_mask": "seen",
                        "past_key_values.%d.key": "in.%d.k", "past_key_values.%d.value": "in.%d.v",
                        "present.%d.key": "out_%d_k", "present.%d.value": "out_%d_v"})
        want = self.said("-n", 9)["ids"]
        self.good("compile", folder, "-o", self.dir / "m.gqac")
        score = self.good("score", LLAMA, "--ids", LLAMA / "ref" / "ids.txt").out
        for model in (folder, folder / "model.onnx", self.dir / "m.gqac"):
            self.assertEqual(self.said("-n", 9, model=model)["ids"], want)
            self.assertEqual(self.good("score", model, "--ids", LLAMA / "ref" / "ids.txt").out,
                             score)
            self.good("equiv", model, "--tokens", 5)
            self.good("inspect", model)

    def test_metrics(self):
        """I22, I25: fields and their arithmetic, and the number of computed tokens."""
        n = len(tokenizer().encode(PROMPT).ids)
        for kv, computed in (("contiguous", n + 9), ("off", sum(range(n, n + 10)))):
            m = self.said("-n", 10, "--kv", kv)["metrics"]
            self.assertEqual(set(m), {"time_to_first_token_ms", "decode_tokens_per_second",
                                      "per_forward_ms", "reused_tokens", "computed_tokens",
                                      "drafted_tokens", "accepted_tokens"})
            f = m["per_forward_ms"]
            self.assertEqual(set(f), {"n", "min", "max", "mean", "all"})
            self.assertEqual((f["n"], len(f["all"])), (10, 10))
            self.assertAlmostEqual(f["min"], min(f["all"]), places=6)
            self.assertAlmostEqual(f["max"], max(f["all"]), places=6)
            self.assertAlmostEqual(f["mean"], sum(f["all"]) / 10, places=6)
            self.assertGreater(f["min"], 0)
            self.assertAlmostEqual(m["decode_tokens_per_second"] * sum(f["all"][1:]) / 9000, 1,
                                   places=6)
            self.assertGreaterEqual(m["time_to_first_token_ms"], f["all"][0])
            self.assertEqual((m["reused_tokens"], m["computed_tokens"]), (0, computed))
        m = self.said("-n", 1)["metrics"]
        self.assertEqual((m["decode_tokens_per_second"], m["per_forward_ms"]["n"]), (0, 1))
        m = self.said("-n", 0)["metrics"]
        self.assertEqual((m["time_to_first_token_ms"], m["per_forward_ms"]["all"]), (0, []))

    def test_metrics_table(self):
        """The same as lines on stderr, only if requested; stdout contains only the text."""
        plain = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 5)
        self.assertRegex(plain.err, r"^kv cache: contiguous \(.*--kv off turns it off\)\n$")
        told = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 5, "--metrics")
        self.assertEqual(told.out, plain.out)
        for word in ("time to first token ", "decode ", "forward passes        n 5  min ",
                     "first passes, ms ", "reused 0  computed "):
            self.assertIn(word, told.err)
        line = next(x for x in told.err.splitlines() if x.startswith("first passes"))
        self.assertEqual(len(line.split()[3:]), 5)
        told = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 40, "--metrics").err
        line = next(x for x in told.splitlines() if x.startswith("first passes"))
        self.assertEqual((len(line.split()[3:]), line[-4:]), (9, " ..."))
        self.assertNotIn("first passes",
                         self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 0, "--metrics").err)
        quiet = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 5, "-q")
        self.assertEqual((quiet.err, quiet.out), ("", plain.out))

    def test_json_lines(self):
        """--format jsonl: a line for each token, then the object of --format json."""
        result = self.good("generate", LLAMA, "--prompt", PROMPT, "-n", 9, "--log-steps",
                           "--format", "jsonl")
        *lines, last = [json.loads(line) for line in result.out.splitlines()]
        want = self.said("-n", 9)
        for key in ("ids", "text", "finish_reason"):
            self.assertEqual(last[key], want[key])
        self.assertEqual([x["id"] for x in lines], want["ids"])
        self.assertEqual("".join(x["text"] for x in lines), want["text"])
        logged = steps(result.err)
        self.assertEqual([(x["step"], x["id"], x["phase"], x["text"]) for x in lines],
                         [(n, i, phase, text) for n, i, _, phase, text in logged])
        for line, row in zip(lines, logged, strict=True):
            self.assertAlmostEqual(100 * line["probability"], row[2], places=2)
        folder = copy_model(self.dir / "eos", model={"eos_token_id": want["ids"][3]})
        *lines, last = [json.loads(line) for line in self.good(
            "generate", folder, "--prompt", PROMPT, "-n", 9, "--format", "jsonl").out.splitlines()]
        self.assertEqual(last["finish_reason"], "eos")
        self.assertEqual([x["eos"] for x in lines], [False] * (len(lines) - 1) + [True])
        self.check(gqac("score", LLAMA, "--ids", LLAMA / "ref" / "ids.txt", "--format", "jsonl"), 2)

    def test_broken_tokenizer(self):
        """It is refused where it is needed, and only there."""
        folder = copy_model(self.dir / "m")
        (folder / "tokenizer.json").write_text("{")
        self.check(gqac("generate", folder, "--prompt", "x"), 3, "tokenizer.json")
        self.check(gqac("compile", folder, "-o", self.dir / "o.gqac"), 3, "tokenizer.json")
        self.assertFalse((self.dir / "o.gqac").exists())
        self.good("score", folder, "--ids", LLAMA / "ref" / "ids.txt")
        self.good("equiv", folder, "--tokens", 4)
        self.good("compile", folder, "--stop-after", "tidy")


class Streams(Generating):
    """Signals and closed streams, with a model whose answers do not end by themselves."""

    def setUp(self):
        super().setUp()
        self.model = copy_model(self.dir / "endless", model={"eos_token_id": None})

    def start(self, *args, **more):
        """A run in the background, unbuffered."""
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        child = subprocess.Popen([GQAC, *map(str, args)], env=harness.environment(), bufsize=0,
                                 **more)
        self.addCleanup(lambda: (child.kill(), child.wait(), [
            f.close() for f in (child.stdin, child.stdout, child.stderr) if f]))
        return child

    def catches(self, child, number):
        """True if the process has a handler for the signal."""
        with open(f"/proc/{child.pid}/status") as status:
            mask = next(line for line in status if line.startswith("SigCgt"))
        return int(mask.split()[1], 16) >> (number - 1) & 1

    def long(self, n):
        """A model and n ids: thousands of ids take seconds of attention on the fastest machine."""
        model = self.dir / "decoder.onnx"
        onnx.save(Decoder("attention").model(), model)
        return model, write_ids(self.dir / "long", [1 + i % 60 for i in range(n)])

    def test_interrupt(self):
        """Ctrl-C ends the answer after the current token: a prefix of the full answer, exit 0."""
        args = ("generate", self.model, "--prompt", "x", "--kv", "off", "-n", "600", "--context", "620")
        for json_form in (False, True):
            form = ("--format", "json") if json_form else ()
            child = self.start(*args, *form, "--log-steps")
            while b"step 3 " not in child.stderr.readline():
                pass
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, err)
            done = 3 + len(steps(err.decode()))
            self.assertLess(done, 500)
            want = self.said("-n", done, prompt="x", model=self.model)
            if json_form:
                found = json.loads(out)
                self.assertEqual((found["ids"], found["text"]), (want["ids"], want["text"]))
                self.assertEqual(found["finish_reason"], "stop")
            else:
                self.assertEqual(out.decode(), want["text"] + "\n")

    def test_interrupt_in_a_prompt(self):
        """Ctrl-C during a prompt ends it at once: exit 130, nothing on stdout; also for other
        verbs."""
        n = 15000
        model, ids = self.long(n)
        for verb in (("generate", "-n", "5"), ("score",), ("equiv", "--splits", "all"), ("bench", "-p", n)):
            file = () if verb[0] == "bench" else ("--ids", ids)
            child = self.start(verb[0], model, *verb[1:], *file, "--target", "ref", "--format", "json")
            while not self.catches(child, signal.SIGINT):
                time.sleep(0.001)
            harness.await_work(child, 5)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, out), (130, b""), (verb, err))
            self.assertIn(b"gqac: interrupted\n", err)

    def test_second_interrupt(self):
        """The second one kills the process while the first one waits for the current token."""
        model, ids = self.long(8000)
        child = self.start("generate", model, "--ids", ids, "-n", "30", "--kv", "off", "--target", "ref", "--log-steps")
        while b"step 1 " not in child.stderr.readline():
            pass
        harness.await_work(child, 3)  # for the next one
        child.send_signal(signal.SIGINT)
        while self.catches(child, signal.SIGINT):  # until the first one was handled
            pass
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, -signal.SIGINT)

    def test_closed_pipe(self):
        """A reader that closes the pipe, and a full disk: exit 5."""
        child = self.start("generate", self.model, "--prompt", "x", "--kv", "off", "-n", "600",
                           "--context", "620", "--log-steps")
        child.stdout.read(1)
        child.stdout.close()
        err = child.stderr.read().decode()
        self.assertEqual(child.wait(60), 5, err)
        self.assertIn("standard output", err)
        self.assertLess(err.count("\nstep "), 500)  # it did not continue to the end
        for form in ((), ("--format", "json")):
            with open("/dev/full", "w") as full:
                child = self.start("generate", LLAMA, "--prompt", "x", "-n", "20", *form,
                                   stdout=full)
                err = child.stderr.read().decode()
                self.assertEqual(child.wait(60), 5, err)

    def test_streaming(self):
        """Text arrives while later tokens are computed."""
        child = self.start("generate", self.model, "--prompt", "x", "--kv", "off", "-n", "300",
                           "--context", "620")
        child.stdout.read(1)
        self.assertIsNone(child.poll())


if __name__ == "__main__":
    sys.exit(harness.main())
