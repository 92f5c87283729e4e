#!/usr/bin/env python3
"""The bundled models: their output, compared with a golden text and with ONNX Runtime step by step.

Greedy text of models/tiny-gqa is test/golden/tiny-gqa.txt (GQAC_UPDATE_GOLDEN=1 writes it). The
oracle is a separate loop: at each step ONNX Runtime's logits for the whole list, the repetition
penalty of genai_config.json, the largest logit. A text that the model has not seen must need fewer
bits than with the 5-gram over bytes of models/README.md.

    python test/python/test_tiny_gqa.py        GQAC names the binary
"""

import json
import math
import os
import sys
import unittest

import numpy as np

import harness
import ortref
from harness import Case, ROOT, gqac

MODEL = ROOT / "models" / "tiny-gqa"
TWIN = ROOT / "models" / "tiny-gqa-int4"
GOLDEN = ROOT / "test" / "golden" / "tiny-gqa.txt"
PROMPT = "She had been a very short time at home, when"
FIVE_GRAM = 1.7393  # bits per byte over bytes, models/README.md
# From chapter 20 of Pride and Prejudice, which was not in the training data.
UNSEEN = (
    "Mr. Collins was not left long to the silent contemplation of his successful love; for Mrs. "
    "Bennet, having dawdled about in the vestibule to watch for the end of the conference, no "
    "sooner saw Elizabeth open the door and with quick step pass her towards the staircase, than "
    "she entered the breakfast-room, and congratulated both him and herself in warm terms on the "
    "happy prospect of their nearer connection. Mr. Collins received and returned these "
    "felicitations with equal pleasure, and then proceeded to relate the particulars of their "
    "interview, with the result of which he trusted he had every reason to be satisfied, since the "
    "refusal which his cousin had steadfastly given him would naturally flow from her bashful "
    "modesty and the genuine delicacy of her character.")


def generate(*args):
    """The JSON answer to PROMPT."""
    return gqac("generate", *args, "--prompt", PROMPT, "--format", "json", "-q")


class Text(Case):
    """The output of the bundled model."""

    def answer(self, *args):
        result = self.check(generate(*args), 0).json()
        return result["ids"], result["text"]

    def test_golden(self):
        """The greedy text, with every cache, any number of threads, and from an artefact."""
        ids, text = self.answer(MODEL, "-n", 100)
        if os.environ.get("GQAC_UPDATE_GOLDEN") == "1":
            GOLDEN.write_text(text + "\n")
        self.assertEqual(text + "\n", GOLDEN.read_text())
        packed = self.dir / "tiny.gqac"
        self.good("compile", MODEL, "-o", packed)
        for args in ((MODEL, "--kv", "off"), (MODEL, "--threads", 2), (packed,),
                     (packed, "--kv", "off", "--temperature", 0)):
            self.assertEqual(self.answer(*args, "-n", 100), (ids, text), args)

    def test_sampled(self):
        """The same seed gives the same text, another seed another one."""
        sampling = ("-n", 60, "--temperature", 0.8, "--top-p", 0.9, "--seed")
        first = self.answer(MODEL, *sampling, 7)
        for args in (("--kv", "off"), ("--threads", 2)):
            self.assertEqual(self.answer(MODEL, *sampling, 7, *args), first)
        self.assertNotEqual(self.answer(MODEL, *sampling, 8), first)

    def oracle_agrees(self, model, n, margin):
        """Every id has the largest penalised logit of ONNX Runtime, or nearly so."""
        penalty = json.loads((model / "genai_config.json").read_text())["search"][
            "repetition_penalty"]
        self.assertGreater(penalty, 1)
        history = [int(i) for i in self.good("tokenize", model, "--text", PROMPT).out.split()]
        runner = ortref.Runner(model / "model.onnx")
        close = 0
        for new in self.answer(model, "-n", n)[0]:
            logits = runner.score(np.array(history))[-1].astype(np.float64)
            seen = sorted(set(history))
            logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty,
                                    logits[seen] * penalty)
            bound = margin * np.abs(logits).max()
            self.assertGreaterEqual(logits[new], logits.max() - bound)
            close += int(np.sum(logits >= logits.max() - bound) > 1)
            history.append(new)
        self.assertLess(close, n // 4)  # the limit decides, not the tolerance

    def test_against_onnx_runtime(self):
        """fp32."""
        self.oracle_agrees(MODEL, 80, 2e-5)

    def test_twin_against_onnx_runtime(self):
        """4-bit weights, exact fp32 arithmetic."""
        self.oracle_agrees(TWIN, 40, 2e-5)

    def test_bits_per_byte(self):
        """The model is better than a 5-gram, on a text that it has not seen."""
        ids = self.good("tokenize", MODEL, "--text", UNSEEN).out.split()
        harness.write_ids(self.dir / "ids.txt", ids)
        for model in (MODEL, TWIN):
            nll = self.good("score", model, "--ids", self.dir / "ids.txt", "--format",
                            "json").json()["nll"]
            self.assertLess(nll / math.log(2) / len(UNSEEN.encode()), FIVE_GRAM, model)

    def test_equiv(self):
        """Both models compute the same bits with every split."""
        for model in (MODEL, TWIN):
            self.good("equiv", model, "--tokens", 80, "--splits", "random:6", "--batch", 2)

    def test_size(self):
        """They are small enough for the repository."""
        size = sum(f.stat().st_size for m in (MODEL, TWIN) for f in m.iterdir())
        self.assertLess(size, 4_000_000)


if __name__ == "__main__":
    sys.exit(harness.main())
