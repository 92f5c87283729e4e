#!/usr/bin/env python3
"""generate and chat with --speculate and --draft: every byte of the answer is as without them, in
fewer steps, which logs and metrics count.

    python test/python/test_speculation.py      (GQAC_TEST_FULL=1: 50 prompts and 3 seeds)
"""

import json
import random
import shutil
import sys
import unittest

import onnx

import harness
from harness import FULL, MODELS, SANITIZED, Case, gqac
from test_invariance import insert, node
from textmodel import steps

TINY, INT4 = harness.ROOT / "models" / "tiny-gqa", harness.ROOT / "models" / "tiny-gqa-int4"
WORDS = ("She had been very much pleased with the party and the carriage was at the door when her "
         "mother said that it was a fine day, I am sure I should have been so").split()
# With a penalty below 1, tokens that occurred before are more likely, so answers repeat themselves.
AGAIN = ("--repetition-penalty", "0.7")


def prompts(count):
    """Texts, half of which repeat themselves."""
    draw = random.Random(7)
    for i in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(3, 12))]
        yield " ".join(words * 3 if i % 2 else words)


class Speculation(Case):
    """With drafts and without."""

    def said(self, *args, model=TINY, **more):
        """(JSON of an answer without its metrics, metrics)."""
        found = self.good("generate", model, *args, "--format", "json", "-q", **more).json()
        return found, found.pop("metrics")

    def expect(self, *args, drafts, model=TINY):
        """The answer with these flags is the same with drafts; returns its metrics with and
        without."""
        want, plain = self.said(*args, model=model)
        found, metrics = self.said(*args, *drafts, model=model)
        self.assertEqual(found, want, (model.name, args, drafts))
        self.assertEqual((plain["drafted_tokens"], plain["accepted_tokens"]), (0, 0))
        self.assertEqual(metrics["reused_tokens"], plain["reused_tokens"])
        self.assertLessEqual(metrics["accepted_tokens"], metrics["drafted_tokens"])
        self.assertLessEqual(metrics["per_forward_ms"]["n"], plain["per_forward_ms"]["n"])
        return metrics, plain

    def test_same(self):
        """Greedy and seeded answers of many prompts, by lookup and by a second model."""
        accepted = drafted = 0
        for i, prompt in enumerate(prompts(50 if FULL else 6)):
            for seed in (None, *range(3 if FULL else 1)):
                drawn = ("--temperature", "0.6", "--seed", seed) if seed is not None else ()
                repeats = AGAIN if i % 2 else ()
                drafts = ("--speculate", 1 + i % 7, *(("--draft", INT4) if i % 3 == 2 else ()))
                metrics, _ = self.expect("--prompt", prompt, "-n", 60, "--top-logprobs", i % 2,
                                         *drawn, *repeats, drafts=drafts)
                drafted += metrics["drafted_tokens"]
                accepted += metrics["accepted_tokens"]
        self.assertGreater(accepted, 0)
        self.assertGreater(drafted, accepted)

    def test_models(self):
        """Other models: windows, LongRoPE, states, experts; stop texts, a context, penalties."""
        for name in ("mistral", "phi3", "lfm2", "qwen3.5", "gpt-oss", "llama-int4-acc4"):
            for flags in (("--stop", "e "), ("--context", 60), ("--presence-penalty", "-1"),
                          ("--temperature", "0.3", "--logit-bias", "101=3")):
                self.expect("--prompt", "Once upon, once upon, once upon", "-n", 60, *AGAIN, *flags,
                            model=MODELS / name, drafts=("--speculate", 5))

    @unittest.skipIf(SANITIZED, "drafts are not worth it: each token of a step takes equally long")
    def test_fewer_steps(self):
        """A text that repeats itself takes fewer steps, and the report is correct."""
        flags = ("--prompt", "Once upon a time", "-n", 100, *AGAIN)
        metrics, plain = self.expect(*flags, drafts=("--speculate", 6))
        self.assertEqual(plain["per_forward_ms"]["n"], 100)
        self.assertGreater(metrics["accepted_tokens"], 0)
        self.assertLess(metrics["per_forward_ms"]["n"], 100)
        told = self.good("generate", TINY, *flags, "--speculate", 6, "--log-steps", "--metrics",
                         "--format", "jsonl")
        *lines, last = [json.loads(line) for line in told.out.splitlines()]
        phases = [line["phase"] for line in lines]
        forwards = last["metrics"]["per_forward_ms"]["n"]
        self.assertEqual([phase for *_, phase, _ in steps(told.err)], phases)
        self.assertEqual((len(phases), phases[0]), (100, "prefill"))
        self.assertEqual((phases.count("decode"), phases.count("draft")),
                         (forwards - 1, 100 - forwards))
        self.assertGreater(phases.count("draft"), 0)
        told = self.good("generate", TINY, *flags, "--speculate", 6, "--metrics")
        self.assertRegex(told.err, r"\ndrafts +drafted [1-9]\d*  accepted [1-9]\d*\n")
        self.assertNotIn("drafts ", self.good("generate", TINY, *flags, "--metrics").err)

    def test_draft_model(self):
        """A second model makes drafts where the text does not repeat itself; it may be an
        artefact."""
        packed = self.dir / "draft.gqac"
        self.good("compile", INT4, "-o", packed)
        for draft in (INT4, packed):
            accepted = 0
            for _ in range(5):  # the number of drafts depends on the times of a busy machine
                metrics, _ = self.expect("--prompt", "Once upon a time", "-n", 100,
                                         drafts=("--speculate", 4, "--draft", draft))
                accepted += metrics["accepted_tokens"]
                if accepted > 5:
                    break
            self.assertGreater(accepted, 5)

    def test_chat(self):
        """The turns of a conversation in one session."""
        typed = self.dir / "typed"
        typed.write_text("I am sure it is a fine day.\nI am sure it is a fine day.\nIs it so?\n")
        for flags in (("--speculate", 6), ("--speculate", 3, "--draft", INT4)):
            turns = []
            for more in ((), flags):
                with open(typed, encoding="utf-8") as lines:
                    told = self.good("chat", TINY, "-n", 40, *AGAIN, *more, "--format", "json",
                                     stdin=lines)
                turns.append([json.loads(line) for line in told.out.splitlines()])
            want, found = turns
            self.assertGreater(sum(turn["metrics"]["accepted_tokens"] for turn in found), 0)
            for turn in (*want, *found):
                turn["reused"] = turn.pop("metrics")["reused_tokens"]
            self.assertEqual(found, want)
            self.assertEqual(len(found), 3)

    def test_impossible(self):
        """If a model or cache cannot verify drafts, this is reported, and text is generated."""
        run = ("--prompt", "Once", "-n", "5")
        last, mixing = self.dir / "last.onnx", self.dir / "mixing.onnx"
        (self.dir / "ids.txt").write_text("1 2 3 4")
        insert([node("Slice", "x zero one axis", "a"), node("Add", "x a", "y")], mixing)
        insert([node("ReduceMax", "x axis", "y", keepdims=1)], last)
        ids = ("--ids", self.dir / "ids.txt", "-n", 5)
        for model, flags, reason in ((TINY, (*run, "--kv", "off"), "no rows are cached"),
                                     (mixing, ids, "change each other's logits"),
                                     (last, ids, "logits of the last token only")):
            want = self.good("generate", model, *flags)
            told = self.good("generate", model, *flags, "--speculate", 4)
            self.assertEqual(told.out, want.out)
            self.assertRegex(told.err, f"gqac: no speculation: .*{reason}")
            self.assertNotIn("speculation", want.err)
            quiet = self.good("generate", model, *flags, "--speculate", 4, "-q")
            self.assertEqual((quiet.out, quiet.err), (want.out, ""))

    def test_refused(self):
        """Incompatible flags, and models whose tokens differ."""
        run = ("generate", TINY, "--prompt", "Once", "-n", 4)
        for value in ("-1", "x", "65", "1.5"):
            self.check(gqac(*run, "--speculate", value), 2, "--speculate")
        self.check(gqac(*run, "--draft", INT4), 2, "--draft needs --speculate")
        self.check(gqac(*run, "--speculate", "0", "--draft", INT4), 2, "--speculate")
        self.check(gqac(*run, "--speculate", "4", "--draft", self.dir / "none"), 5, "--draft")
        found = gqac(*run, "--speculate", "4", "--draft", MODELS / "llama")
        self.check(found, 2, "another tokenizer", "token 0 is '!'", "--draft", "same family")
        bare = self.dir / "bare"
        bare.mkdir()
        for name in ("model.onnx", "model.onnx.data"):
            shutil.copy(MODELS / "llama" / name, bare)
        found = gqac(*run, "--speculate", "4", "--draft", bare / "model.onnx")
        self.check(found, 2, "vocabulary of 258 tokens, but the model one of", "--draft")

    def test_without_tokenizer(self):
        """Only ids: vocabularies of the same size are compatible."""
        bare = self.dir / "bare"
        bare.mkdir()
        for name in ("model.onnx", "model.onnx.data"):
            shutil.copy(MODELS / "qwen2" / name, bare)
        (self.dir / "ids.txt").write_text("1 2 3 4 1 2 3 4 1 2")
        self.expect("--ids", self.dir / "ids.txt", "-n", 40, *AGAIN, model=MODELS / "llama",
                    drafts=("--speculate", 4, "--draft", bare / "model.onnx"))


if __name__ == "__main__":
    sys.exit(harness.main())
