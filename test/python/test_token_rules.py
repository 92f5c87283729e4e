#!/usr/bin/env python3
"""The ids that generation_config.json forbids and requires, and those that end a text: `gqac
generate`, `chat` and `serve` return the ids of a greedy loop with the logits processors of Hugging
Face transformers, reimplemented here, on the logits of ONNX Runtime or of `gqac score`.

    python test/python/test_token_rules.py
"""

import json
import sys

import numpy as np

import decoders
import harness
from harness import write_ids
from serving import Server
from test_insert_kv import names, session
from test_translate import NEW, START, STATES, Folders
from textmodel import copy_model


def processed(scores, ids, n_prompt, most, rules):
    """The scores of the next id, with processors in the order of transformers."""
    scores, n = scores.astype(np.float64), len(ids)

    def only(chosen):
        kept = scores[chosen]
        scores[:] = -np.inf
        scores[chosen] = kept if len(chosen) > 1 else 0

    ends = np.atleast_1d(rules.get("eos_token_id", [])).astype(int)
    size = rules.get("no_repeat_ngram_size", 0)
    for at in range(n - size + 1 if size else 0):
        if ids[at:at + size - 1] == ids[n - size + 1:]:
            scores[ids[at + size - 1]] = -np.inf
    for word in rules.get("bad_words_ids", []):
        if not (len(word) == 1 and word[0] in ends) and ids[n - len(word) + 1:] == word[:-1]:
            scores[word[-1]] = -np.inf
    if n < (n_prompt + rules["min_new_tokens"] if "min_new_tokens" in rules else rules.get("min_length", 0)):
        scores[ends] = -np.inf
    if n == 1 and "forced_bos_token_id" in rules:
        only([rules["forced_bos_token_id"]])
    if n == n_prompt + most - 1 and "forced_eos_token_id" in rules:
        only([rules["forced_eos_token_id"]])
    scores[[x for x in rules.get("suppress_tokens", []) if x < len(scores)]] = -np.inf
    forced = {at: [x] for at, x in rules.get("forced_decoder_ids", [])}
    if forced.get(1) == [None]:
        forced[1] = list(rules["lang_to_id"].values())
    if forced and not rules.get("return_timestamps") and "no_timestamps_token_id" in rules:
        forced[max(forced) + 1] = [rules["no_timestamps_token_id"]]
    begin = n_prompt + (n_prompt == 1 and "forced_bos_token_id" in rules)
    if n == max([begin, *(at + 1 for at in forced)]):
        scores[rules.get("begin_suppress_tokens", [])] = -np.inf
    if n in forced:
        only(forced[n])
    return scores


def greedy(logits, prompt, most, rules):
    """The new ids of a loop over logits(ids)."""
    ids = list(prompt)
    while len(ids) < len(prompt) + most and ids[len(prompt):][-1:] not in [
            [x] for x in np.atleast_1d(rules.get("eos_token_id", []))]:
        ids.append(int(processed(logits(ids), ids, len(prompt), most, rules).argmax()))
    return ids[len(prompt):]


class Encoder(Folders):
    """A folder with an encoder and a decoder."""

    def setUp(self):
        super().setUp()
        self.flags = self.make()
        states = session(self.folder / "encoder_model.onnx").run(
            None, {"input_ids": self.ids[None], "attention_mask": np.ones((1, STATES), np.int64)})[0]
        decoder = session(self.dir / "plain.onnx")
        wanted, mask = names(decoder.get_inputs()), np.ones((1, STATES), np.int64)

        def logits(ids):
            feeds = {"input_ids": np.array([ids]), "encoder_hidden_states": states,
                     "encoder_attention_mask": mask}
            return decoder.run(["logits"], {k: v for k, v in feeds.items() if k in wanted})[0][0, -1]

        self.logits = logits
        self.plain = greedy(logits, [START], NEW, {})

    def cases(self):
        """Fields, each of which changes the ids of this model."""
        a, b, c = self.plain[0], self.plain[1], self.plain[-1]
        free = [i for i in range(decoders.VOCABULARY) if i not in self.plain]
        yield {"suppress_tokens": [b, 2]}
        yield {"begin_suppress_tokens": [a, free[0]]}
        yield {"bad_words_ids": [[b], [free[1], free[2]]]}
        yield {"bad_words_ids": [[START, a], [a, b]]}
        yield {"forced_bos_token_id": free[0]}
        yield {"forced_eos_token_id": free[1], "eos_token_id": free[1]}
        yield {"forced_decoder_ids": [[1, free[2]], [3, free[3]]]}
        yield {"forced_decoder_ids": [[1, None], [2, free[3]]], "no_timestamps_token_id": free[4],
               "lang_to_id": {"<|en|>": free[5], "<|fr|>": free[6], "<|de|>": free[7]},
               "begin_suppress_tokens": self.plain[2:5], "suppress_tokens": [free[8]]}
        # opus-mt, BART
        yield {"bad_words_ids": [[a]], "eos_token_id": free[0], "forced_eos_token_id": free[0]}
        yield {"forced_bos_token_id": free[1], "forced_eos_token_id": c, "eos_token_id": c,
               "begin_suppress_tokens": [b]}
        yield {"eos_token_id": b, "bad_words_ids": [[b]], "suppress_tokens": [a]}
        yield {"no_repeat_ngram_size": 1}
        yield {"eos_token_id": b, "min_length": 4}
        yield {"eos_token_id": b, "min_length": 2, "min_new_tokens": 4}

    def put(self, name, settings):
        """Writes one of the config files."""
        (self.folder / name).write_text(json.dumps(settings), encoding="utf-8")

    def test_ids(self):
        """Each field changes the ids to those of the loop, in both files."""
        self.assertEqual(self.generate(*self.flags)["ids"], self.plain)
        for rules in self.cases():
            want = greedy(self.logits, [START], NEW, rules)
            self.assertNotEqual(want, self.plain, rules)
            beams = {"num_beams": 4}
            for name, other in (("generation_config.json", {}), ("config.json", None)):
                with self.subTest(rules=rules, name=name):
                    self.config(**({"suppress_tokens": [0], "eos_token_id": 1} if other == {} else {}))
                    self.put(name, {"decoder_start_token_id": START, **beams, **rules})
                    if other == {} and "eos_token_id" not in rules:
                        self.config()
                    got = self.generate(*self.flags)
                    self.assertEqual(got["ids"], want)
                    self.assertIn(f"not obeyed, {name}: num_beams is 4", self.good(
                        "generate", self.folder, *self.flags, "-n", 2).err)
                    self.assertEqual(got["finish_reason"],
                                     "eos" if want[-1] == rules.get("eos_token_id") else "length")
                (self.folder / "generation_config.json").unlink(missing_ok=True)

    def test_server(self):
        """The server returns the same ids; with a field of the request the answer ends at another
        length."""
        rules = {"forced_bos_token_id": 9, "forced_eos_token_id": 5, "eos_token_id": 5, "num_beams": 4,
                 "suppress_tokens": [self.plain[1], 999]}
        self.put("generation_config.json", {"decoder_start_token_id": START, **rules})
        with Server("--threads", 1, model=self.folder) as server:
            self.assertIn("gqac: not obeyed, generation_config.json: num_beams is 4\ngqac: the config forbids id 999", server.errors())
            for most in (2, 3, NEW):
                said = server.good("/v1/completions", {"prompt": self.ids.tolist(), "max_tokens": most,
                                                       "return_token_ids": True})
                want = greedy(self.logits, [START], most, rules)
                self.assertEqual((want[0], want[-1]), (9, 5))
                self.assertEqual(said["choices"][0]["token_ids"], want)
            self.assertEqual(server.stop(), 0)

    def test_refused(self):
        """An invalid field, and a required id that the model does not have."""
        for rules, word in (({"suppress_tokens": 1}, "suppress_tokens"),
                            ({"bad_words_ids": [1]}, "bad_words_ids"),
                            ({"forced_decoder_ids": [[0, 1]]}, "forced_decoder_ids"),
                            ({"forced_bos_token_id": decoders.VOCABULARY}, "forced_bos_token_id")):
            self.put("generation_config.json", rules)
            self.check(harness.gqac("generate", self.folder, *self.flags), 3, word)


class Decoder(harness.Case):
    """A folder with one decoder, with and without a genai_config.json."""

    PROMPT, MOST = "It was", 14

    def setUp(self):
        super().setUp()
        self.folder = copy_model(self.dir / "m", model={"eos_token_id": None})
        self.bare = copy_model(self.dir / "bare", drop=("genai_config.json",))
        tokens = self.good("tokenize", self.folder, "--text", self.PROMPT).out
        self.ids = [int(x) for x in tokens.split()]
        self.plain = self.said(self.folder)["ids"]

    def said(self, model, *flags, most=MOST):
        """The JSON of a run."""
        return self.good("generate", model, "--prompt", self.PROMPT, "-n", most, "--format", "json",
                         *flags).json()

    def logits(self, ids):
        """The last row of logits."""
        self.good("score", self.folder, "--ids", write_ids(self.dir / "ids.txt", ids), "--logits",
                  self.dir / "logits.npy")
        return np.load(self.dir / "logits.npy")[-1]

    def test_ids(self):
        """The rules of generation_config.json, or of config.json if there is none, together with a
        genai_config.json; also with drafts."""
        a, b = self.plain[0], self.plain[3]
        n = len(self.ids)
        for rules in ({"suppress_tokens": [b], "begin_suppress_tokens": [a]},
                      {"bad_words_ids": [[self.ids[-1], a], [*self.plain[:3], b], [7]]},
                      {"forced_decoder_ids": [[1, 4], [n + 2, 65]], "begin_suppress_tokens": [66]},
                      {"no_repeat_ngram_size": 1},
                      {"forced_eos_token_id": 10, "forced_bos_token_id": 11}):
            want = greedy(self.logits, self.ids, self.MOST, rules)
            self.assertNotEqual(want, self.plain, rules)
            for name in ("config.json", "generation_config.json"):
                (self.folder / name).write_text(json.dumps(rules), encoding="utf-8")
                for flags in ((), ("--speculate", 4), ("--kv", "off")):
                    self.assertEqual(self.said(self.folder, *flags)["ids"], want, (rules, name, flags))
            drawn = self.said(self.folder, "--temperature", 30, "--seed", 3, most=40)["ids"]
            forbidden = {*rules.get("suppress_tokens", []), 7 if "bad_words_ids" in rules else -1}
            self.assertFalse(forbidden & set(drawn), rules)
            (self.folder / "config.json").unlink()
            (self.folder / "generation_config.json").unlink()
        self.assertEqual(self.said(self.folder)["ids"], self.plain)

    def test_other_doors(self):
        """An artefact, the server and `chat` follow the rules too."""
        b = self.plain[2]
        (self.folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": [b]}),
                                                            encoding="utf-8")
        want = self.said(self.folder)["ids"]
        self.assertNotEqual(want, self.plain)
        self.good("compile", self.folder, "-o", self.dir / "m.gqac")
        self.assertEqual(self.said(self.dir / "m.gqac")["ids"], want)
        with Server("--threads", 1, model=self.folder) as server:
            said = server.good("/v1/completions", {"prompt": self.PROMPT, "max_tokens": self.MOST,
                                                   "return_token_ids": True})
            self.assertEqual(said["choices"][0]["token_ids"], want)
            self.assertEqual(server.stop(), 0)

        (self.dir / "turn").write_text("Hello\n", encoding="utf-8")

        def chat():
            with open(self.dir / "turn", encoding="utf-8") as turn:
                return self.good("chat", self.folder, "-n", 30, "--format", "json", stdin=turn).json()

        with_rules = chat()["ids"]
        (self.folder / "generation_config.json").write_text(
            json.dumps({"suppress_tokens": with_rules[:1]}), encoding="utf-8")
        self.assertNotEqual(chat()["ids"][0], with_rules[0])

    def test_ends(self):
        """Without genai_config.json, the ids that end a text are those of generation_config.json,
        or else of config.json; with it, its own."""
        at = next(i for i in range(2, self.MOST) if self.plain[i] not in self.plain[:i])
        end, model = self.plain[at], self.bare / "model.onnx"
        self.assertEqual(self.said(model)["ids"], self.plain)
        for generation, config, ends in (({"eos_token_id": [256, end]}, {"eos_token_id": self.plain[1]}, True),
                                         ({}, {"eos_token_id": end}, True), (None, {"eos_token_id": end}, True),
                                         ({"eos_token_id": 256}, {"eos_token_id": end}, False)):
            for folder in (self.bare, self.folder):
                for name, settings in (("generation_config.json", generation), ("config.json", config)):
                    (folder / name).unlink(missing_ok=True)
                    if settings is not None:
                        (folder / name).write_text(json.dumps(settings), encoding="utf-8")
            found = self.said(model)
            self.assertEqual((found["ids"], found["finish_reason"]), (
                self.plain[:at + 1], "eos") if ends else (self.plain, "length"))
            self.assertEqual(self.said(self.folder)["ids"], self.plain)
        (self.bare / "tokenizer.json").unlink()  # a config alone belongs to the model in its folder
        (self.bare / "generation_config.json").write_text(json.dumps({"eos_token_id": end}),
                                                          encoding="utf-8")
        write_ids(self.dir / "prompt.txt", self.ids)
        found = self.good("generate", model, "--ids", self.dir / "prompt.txt", "-n", self.MOST, "--format",
                          "json").json()
        self.assertEqual((found["ids"], found["finish_reason"]), (self.plain[:at + 1], "eos"))

    def test_least(self):
        """min_new_tokens and min_length, also with drafts, and with the ids of
        genai_config.json."""
        end, n = self.plain[2], len(self.ids)
        for name in ("config.json", "genai_config.json"):
            folder = copy_model(self.dir / name, model={"eos_token_id": end if name.startswith("genai") else None},
                                drop=() if name.startswith("genai") else ("genai_config.json",))
            for rules, least in (({"min_new_tokens": 6}, 6), ({"min_length": n + 5}, 5), ({}, 0)):
                (folder / "generation_config.json").write_text(
                    json.dumps({**rules, "eos_token_id": end}), encoding="utf-8")
                want = greedy(self.logits, self.ids, self.MOST, {**rules, "eos_token_id": end})
                self.assertTrue(len(want) > least, (rules, want))
                for flags in ((), ("--speculate", 4), ("--kv", "off")):
                    got = self.said(folder if name.startswith("genai") else folder / "model.onnx", *flags)
                    self.assertEqual(got["ids"], want, (name, rules, flags))

    def test_not_obeyed(self):
        """A line names the unsupported settings, except with -q; if genai_config.json has a search,
        only those that it lacks too."""
        settings = {"num_beams": 4, "do_sample": True, "top_p": 0.9, "top_h": 0.4, "min_length": 1,
                    "suppress_tokens": [258]}
        for model, listed in ((self.folder, "top_h is 0.4"), (
                self.bare / "model.onnx", "num_beams is 4, do_sample is true, top_p is 0.9, top_h is 0.4")):
            folder = model if model.is_dir() else model.parent
            (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
            line = (f"gqac: not obeyed, generation_config.json: {listed}\n"
                    "gqac: the config forbids id 258, but the model has only 258 ids: ")
            flags = ("generate", model, "--prompt", self.PROMPT, "-n", 2)
            self.assertIn(line, self.good(*flags).err)
            self.assertEqual(self.good(*flags, "-q").err, "")
            self.assertIn(line, self.good("compile", model, "-o", self.dir / "m.gqac").err)
            self.assertIn(line, self.good("generate", self.dir / "m.gqac", *flags[2:]).err)

    def test_refused(self):
        """Exit 3 with the name of the field; a required id that the model lacks."""
        for rules, word in (({"begin_suppress_tokens": [-4]}, "begin_suppress_tokens"),
                            ({"forced_eos_token_id": 258}, "forced_eos_token_id 258"),
                            ({"forced_decoder_ids": [[3, 999]]}, "forced_decoder_ids 999")):
            (self.folder / "generation_config.json").write_text(json.dumps(rules), encoding="utf-8")
            self.check(harness.gqac("generate", self.folder, "--prompt", "x"), 3, word)


if __name__ == "__main__":
    sys.exit(harness.main())
