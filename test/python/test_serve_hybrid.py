#!/usr/bin/env python3
"""gqac serve with models that have recurrent states (LFM2: causal convolutions, Qwen 3.5: linear
attention): prompts continue cached states, tokens are counted exactly, and answers have the bits of
the command line, cold, cached, and after a restart.

    python test/python/test_serve_hybrid.py
"""

import random
import sys

import harness
from harness import Case, FULL, MODELS, write_ids
from serving import Server, absent

BLOCK = 64  # tokens, GQAC_KV_BLOCK
NEW = 12


def common(a, b):
    """Length of the common prefix of two lists."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Hybrid(Case):
    """A conversation of ids with several servers, one after another, with the same folder."""

    def generate(self, model, ids):
        """The JSON of the command line."""
        return self.good("generate", MODELS / model, "--ids", write_ids(self.dir / "ids", ids), "-n",
                         NEW, "--format", "json", "--top-logprobs", 3).json()

    def ask(self, server, model, ids, **fields):
        """(answer, cached tokens) for a prompt; checks the bits and the counts."""
        before = [server.metric(f"gqac_{name}_tokens_total") for name in ("computed", "reused")]
        reply = server.good("/v1/completions", {"prompt": ids, "max_tokens": NEW, "logprobs": 3,
                                                "return_token_ids": True, **fields})
        choice, usage, want = reply["choices"][0], reply["usage"], self.generate(model, ids)
        self.assertEqual(choice["token_ids"], want["ids"])
        self.assertEqual(choice["text"], want["text"])
        self.assertEqual(choice["logprobs"]["token_logprobs"],
                         [x["logprob"] for x in want["logprobs"]])
        for got, one in zip(choice["logprobs"]["top_logprobs"], want["logprobs"]):
            self.assertLessEqual({x["logprob"] for x in one["top"]}, set(got.values()))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(usage["prompt_tokens"], len(ids))
        if not fields:  # the metrics count what was computed and reused, nothing twice
            server.await_metric("gqac_computed_tokens_total",
                                before[0] + len(ids) - cached + len(want["ids"]) - 1)
            server.await_metric("gqac_reused_tokens_total", before[1] + cached)
        return choice["token_ids"], cached

    def conversation(self, model, exact):
        """Two turns, the first one again, an edited first one, and all of it after a restart."""
        pick = random.Random(5)
        first, more = ([pick.randrange(250) for _ in range(n)] for n in (90, 9))
        edited = first[:80] + more
        again = len(first) - 1 if exact else BLOCK  # there is a state; otherwise only at the ends
        with Server("--prefix-store", self.dir / model, model=MODELS / model) as server:
            said, cached = self.ask(server, model, first)
            self.assertEqual(cached, 0)
            second = first + said + more
            self.assertEqual(self.ask(server, model, second)[1], len(first) + len(said) - 1)
            self.assertEqual(self.ask(server, model, first)[1], again)
            self.assertEqual(self.ask(server, model, edited)[1], 80 if exact else BLOCK)
            reply = server.good("/v1/completions", {
                "prompt": second, "max_tokens": NEW, "n": 2, "seed": 3, "verify_cache": True,
                "ignore_eos": True})
            self.assertEqual(reply["verify_cache"], {
                "equal": True, "tokens": 2 * NEW, "differing_ids": 0, "same_logits": True})
            self.assertGreaterEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], again)
            self.assertEqual(server.stop(), 0)
        with Server("--prefix-store", self.dir / model, model=MODELS / model) as server:
            self.assertEqual(self.ask(server, model, first)[1], again)
            self.assertEqual(self.ask(server, model, edited)[1], len(edited) - 1 if exact else BLOCK)
            cached = self.ask(server, model, second + [1, 2])[1]
            self.assertIn(cached, (len(second),) if exact else range(BLOCK, len(second) + 1))

    def test_lfm2(self):
        """Convolutions: every length can be continued."""
        self.conversation("lfm2", True)

    def test_qwen35(self):
        """Linear attention: the ends of prompts and answers can be continued, and some multiples of
        64."""
        self.conversation("qwen3.5", False)

    @harness.unittest.skipUnless(FULL, "long tier: many conversations")
    def test_random(self):
        """Prompts that continue, repeat and edit earlier ones; the server is sometimes
        restarted."""
        for model, exact in (("lfm2", True), ("qwen3.5", False)):
            pick, known, ends = random.Random(1), [], []
            for start in range(8):
                with Server("--prefix-store", self.dir / ("random" + model),
                            model=MODELS / model) as server:
                    for _ in range(12):
                        base = pick.choice(known) if known and pick.random() < 0.8 else []
                        kept = pick.choice((len(base), pick.randrange(len(base) + 1)))
                        ids = base[:min(kept, 250)] + [pick.randrange(250)
                                                       for _ in range(pick.randrange(1, 40))]
                        said, cached = self.ask(server, model, ids)
                        longest = min(max((common(ids, k) for k in known), default=0), len(ids) - 1)
                        with self.subTest(model=model, start=start, tokens=len(ids)):
                            if exact:
                                self.assertEqual(cached, longest)
                            self.assertLessEqual(cached, longest)
                            self.assertGreaterEqual(cached, max(
                                (len(e) for e in ends if len(e) < len(ids) and ids[:len(e)] == e),
                                default=0))
                        known.append((ids + said)[:-1])
                        ends.append(known[-1])
                    self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
