#!/usr/bin/env python3
"""`gqac generate` on folders with an encoder and a decoder (rows N16 to N20).

A text model (ids in) and a speech model (features from a .npy in), each with a decoder without
caches and with those that `rewrite --pass insert-kv` adds. The ids must be those of a greedy loop
in ONNX Runtime that computes all ids every time; generation stops at the end token or at -n.
"""

import json
import shutil
import sys

import numpy as np
import onnx

import decoders
import harness
from decoders import F, HEADS, I32, I64, LAYERS, SIZE, WIDTH, Decoder
from harness import Case, gqac, write_ids
from test_cross_cache import Translator
from test_insert_kv import names, session

START, NEW, STATES, BANDS = 3, 12, 7, 5
SEED = 18  # for decoders that do not repeat one id


class Encoder(Decoder):
    """From ids, or features [B,bands,L], to states [B,L,M]; one layer without a mask."""

    def states(self, features, mask=None, rows=False):
        """Replaces the graph of the decoder. `mask`: the name of its length, also for features;
        `rows`: the features are [B,L,bands]."""
        self.nodes.clear()
        self.inputs = [self.info("input_features", F, ["B", "L", BANDS] if rows else ["B", BANDS, "L"])
                       if features else self.info("input_ids", I64, ["B", "L"])]
        if mask or not features:
            self.inputs.append(self.info("attention_mask", I64, ["B", mask or "L"]))
        self.outputs = [self.info("last_hidden_state", F, ["B", "L", WIDTH])]
        if features:
            e = "input_features" if rows else self.node("Transpose", "input_features", perm=[0, 2, 1])
            e = self.node("MatMul", e, self.weight("bands", BANDS, WIDTH))
        else:
            e = self.node("Gather", "embed", "input_ids")
        if mask:
            e = self.node("Mul", e, self.node("Unsqueeze", self.node("Cast", "attention_mask", to=F),
                                              self.constant("last", np.array([2]))))
        q, k, v = (self.project(f"e{n}", e, WIDTH, WIDTH) for n in "qkv")
        self.node("Attention", q, k, v, out=["last_hidden_state"], q_num_heads=HEADS,
                  kv_num_heads=HEADS)
        return self.model()


    def with_caches(self):
        """Takes features; returns the states, and from them the keys and values of every layer of
        the decoder."""
        self.states(True)
        shape = self.constant("heads", np.array([0, 0, HEADS, SIZE]))
        for layer in range(LAYERS):
            for part in ("key", "value"):
                x = self.project(f"{part}{layer}", "last_hidden_state", WIDTH, WIDTH)
                name = f"present_{part}_cross_{layer}"
                self.node("Transpose", self.node("Reshape", x, shape), out=[name], perm=[0, 2, 1, 3])
                self.outputs.append(self.info(name, F, ["B", HEADS, "L", SIZE]))
        return self.model()


class Built(Decoder):
    """Whisper's decoder as written by the model builder: 32-bit ids, and no states."""

    def built(self, layer, x):
        """The keys and values of cross-attention are inputs, which the encoder returns."""
        kept, given, out = ([f"{word}_{n}_{layer}" for n in names] for word, names in (
            ("past", ("key_self", "value_self")), ("past", ("key_cross", "value_cross")),
            ("present", ("key_self", "value_self"))))
        for names, rows, values in ((kept, "P", self.inputs), (given, "L", self.inputs),
                                    (out, "T", self.outputs)):
            values.extend(self.info(n, F, ["B", HEADS, rows, SIZE]) for n in names)
        y = self.node("MultiHeadAttention", *self.qkv(layer, x, HEADS), "", "", "", *kept,
                      out=[f"y{layer}", *out], domain="com.microsoft", num_heads=HEADS,
                      unidirectional=1)
        x = self.node("Add", x, self.project(f"s{layer}", y, WIDTH, WIDTH))
        return self.node("MultiHeadAttention", self.project(f"cq{layer}", x, WIDTH, WIDTH), *given,
                         domain="com.microsoft", num_heads=HEADS)

    def model(self):
        """Without a mask."""
        self.inputs[:2] = [self.info("input_ids", I32, ["B", "S"])]
        return super().model()


class Folders(Case):
    """A folder with an encoder and a decoder, made and run."""

    def setUp(self):
        super().setUp()
        self.folder = self.dir / "model"
        self.folder.mkdir()
        random = np.random.default_rng(8)
        self.ids = random.integers(0, decoders.VOCABULARY, STATES)
        self.features = random.standard_normal((1, BANDS, STATES)).astype(np.float32)
        np.save(self.dir / "features.npy", self.features)
        write_ids(self.dir / "ids.txt", self.ids)

    def make(self, features=False, cached=False, kind="multi_head_cross"):
        """A folder; returns the flags of its input."""
        onnx.save(Encoder("attention", seed=4).states(features), self.folder / "encoder_model.onnx")
        plain = Translator(kind, seed=SEED).save(self.dir / "plain.onnx")
        if cached:
            self.good("rewrite", plain, "--pass", "insert-kv", "-o", self.folder / "decoder.onnx")
        else:
            shutil.copy(plain, self.folder / "decoder_model.onnx")
        self.config()
        return ("--features", self.dir / "features.npy") if features else (
            "--ids", self.dir / "ids.txt")

    def config(self, **more):
        """Sets the first id and the end id."""
        (self.folder / "config.json").write_text(
            json.dumps({"decoder_start_token_id": START, **more}), encoding="utf-8")

    def expected(self, features=False):
        """Ids of a greedy loop without caches in ONNX Runtime."""
        encoder = session(self.folder / "encoder_model.onnx")
        feeds = {"input_features": self.features} if features else {
            "input_ids": self.ids[None], "attention_mask": np.ones((1, STATES), np.int64)}
        wanted = names(encoder.get_inputs())
        states = encoder.run(None, {k: v for k, v in feeds.items() if k in wanted})[0]
        decoder, ids = session(self.dir / "plain.onnx"), [START]
        for _ in range(NEW):
            feeds = {"input_ids": np.array([ids]), "encoder_hidden_states": states,
                     "encoder_attention_mask": np.ones((1, states.shape[1]), np.int64)}
            feeds = {k: v for k, v in feeds.items() if k in names(decoder.get_inputs())}
            ids.append(int(decoder.run(["logits"], feeds)[0][0, -1].argmax()))
        return ids[1:]

    def generate(self, *args):
        """The JSON of a run."""
        return self.good("generate", self.folder, *args, "-n", NEW, "--format", "json").json()


class Translate(Folders):
    """The command line."""

    def test_n20_translation(self):
        """Ids in: with and without caches, the ids of the loop."""
        for kind in ("multi_head_cross", "attention_cross", "padded"):
            flags = self.make(kind=kind)
            expected = self.expected()
            self.assertGreater(len(set(expected)), 2, kind)
            self.assertEqual(self.generate(*flags)["ids"], expected, kind)
            (self.folder / "decoder_model.onnx").unlink()
            done = (self.make(cached=True, kind=kind), self.generate(*flags))[1]
            self.assertEqual(done["ids"], expected, kind)
            self.assertEqual(done["finish_reason"], "length")
            self.assertEqual(done["metrics"]["computed_tokens"], NEW)
            (self.folder / "decoder.onnx").unlink()

    def test_exporters_names(self):
        """past_key_values, present and use_cache_branch, as in merged decoders; also the same
        dimension for the encoder's states and their caches."""
        flags = self.make(cached=True)
        path = self.folder / "decoder.onnx"
        model = onnx.load(path)
        graph = model.graph
        new = {f"cache_{p}_{w}_{i}": f"{to}.{i}.{'key' if p == 'k' else 'value'}"
               for i in range(4) for p in "kv"
               for w, to in (("in", "past_key_values"), ("out", "present"))}
        branches = [a.g for n in graph.node if n.op_type == "If" for a in n.attribute]
        for g in (graph, *branches):
            for node in g.node:
                for words in (node.input, node.output):
                    words[:] = [new.get(w, w) for w in words]
            for value in (*g.input, *g.output):
                value.name = new.get(value.name, value.name)
        choice = next(n for n in graph.node if n.op_type == "If")
        choice.input[0] = "use_cache_branch"
        graph.input.append(onnx.helper.make_tensor_value_info("use_cache_branch",
                                                              onnx.TensorProto.BOOL, [1]))
        onnx.save(model, self.folder / "decoder_model_merged.onnx")
        path.unlink()
        self.assertEqual(self.generate(*flags)["ids"], self.expected())
        for value in graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "cached_encoder_length":
                    dim.dim_param = "L"
        onnx.save(model, self.folder / "decoder_model_merged.onnx")
        self.assertEqual(self.generate(*flags)["ids"], self.expected())

    def test_onnx_folder(self):
        """A repository for transformers.js: the files are in the folder `onnx`, and config and
        tokenizer above it. A folder with another name does not use files above it, and its own
        files take precedence."""
        flags = self.make()
        shutil.copy(harness.MODELS / "llama" / "tokenizer.json", self.folder)
        texts = [self.generate(*how)["text"] for how in (flags, ("--prompt", "!A!"))]
        self.assertTrue(all(texts))
        whole, inner = self.folder, self.folder / "onnx"
        inner.mkdir()
        for path in whole.glob("*.onnx"):
            path.rename(inner / path.name)
        self.check(harness.gqac("generate", whole, *flags), 5, "no genai_config.json", str(inner))
        for self.folder in (inner, f"{inner}/"):
            self.assertEqual([self.generate(*how)["text"] for how in (flags, ("--prompt", "!A!"))], texts)
        self.folder = inner
        (whole / "config.json").write_text("{", encoding="utf-8")
        self.check(harness.gqac("generate", inner, *flags), 3, "onnx/../config.json")
        self.config()
        self.assertEqual(self.generate(*flags)["ids"], self.expected())
        (inner / "config.json").unlink()
        (whole / "config.json").write_text(json.dumps({"decoder_start_token_id": START}))
        self.assertEqual(self.generate(*flags)["text"], texts[0])
        inner.rename(whole / "other")
        self.check(harness.gqac("generate", whole / "other", *flags), 3, "decoder_start_token_id")

    def test_n20_speech(self):
        """Features in."""
        flags = self.make(features=True, cached=True)
        self.assertEqual(self.generate(*flags)["ids"], self.expected(True))

    def test_model_builder(self):
        """A folder of the model builder: the encoder computes the cross caches, once."""
        onnx.save(Encoder("attention", seed=4).with_caches(), self.folder / "encoder.onnx")
        Built("built", seed=SEED).save(self.folder / "decoder.onnx")
        encoder, decoder = (session(self.folder / f"{n}.onnx") for n in ("encoder", "decoder"))
        made = dict(zip(names(encoder.get_outputs()),
                        encoder.run(None, {"input_features": self.features})))
        feeds = {n: made.get(n.replace("past", "present"),
                             np.zeros((1, HEADS, 0, SIZE), np.float32))
                 for n in names(decoder.get_inputs()) if n != "input_ids"}
        ids = [START]
        for _ in range(NEW):
            feeds["input_ids"] = np.array([ids[-1:]], np.int32)
            said = dict(zip(names(decoder.get_outputs()), decoder.run(None, feeds)))
            ids.append(int(said["logits"][0, -1].argmax()))
            feeds |= {n.replace("present", "past"): v for n, v in said.items() if n != "logits"}
        self.assertGreater(len(set(ids)), 4)
        run = ("generate", self.folder, "--features", self.dir / "features.npy")
        config = {"encoder": {"filename": "encoder.onnx"}, "eos_token_id": 60}
        path = self.folder / "genai_config.json"
        path.write_text(json.dumps({"model": config}), encoding="utf-8")
        self.check(gqac(*run), 3, "decoder_start_token_id", "genai_config.json")
        config["decoder_start_token_id"] = START
        path.write_text(json.dumps({"model": config}), encoding="utf-8")
        self.assertNotIn(60, ids)
        done = self.generate(*run[2:])
        self.assertEqual((done["ids"], done["metrics"]["computed_tokens"]), (ids[1:], NEW))

    def test_masked_features(self):
        """An encoder may have an attention mask as well as features: ones for each frame."""
        self.make(features=True)
        file = self.folder / "encoder_model.onnx"
        expected = self.expected(features=True)
        for rows in (False, True):
            given = self.features.transpose(0, 2, 1) if rows else self.features
            np.save(self.dir / "features.npy", np.ascontiguousarray(given))
            for mask in ("L", "M"):  # the name for the number of frames, or another one
                onnx.save(Encoder("attention", seed=4).states(True, mask, rows), file)
                said = self.generate("--features", self.dir / "features.npy")
                self.assertEqual(said["ids"], expected, (rows, mask))
        onnx.save(Encoder("attention", seed=4).states(True, mask=99), file)
        self.check(gqac("generate", self.folder, "--features", self.dir / "features.npy"), (3, 4))

    def test_many_frames(self):
        """The decoder's mask of the states has their length, also if the text is short."""
        self.features = np.random.default_rng(9).standard_normal((1, BANDS, 300)).astype(np.float32)
        np.save(self.dir / "features.npy", self.features)
        flags = self.make(features=True, kind="padded")
        self.assertEqual(self.generate(*flags)["ids"], self.expected(features=True))

    def test_traced_whisper(self):
        """A traced model: its attention is raised before it gets both kinds of caches."""
        traced = harness.ROOT / "test" / "traced" / "whisper"
        shutil.copytree(traced, self.folder, dirs_exist_ok=True)
        features = np.random.default_rng(8).standard_normal((1, 8, 40)).astype(np.float32)
        np.save(self.dir / "features.npy", features)
        states = session(traced / "encoder_model.onnx").run(None, {"input_features": features})[0]
        decoder, ids = session(traced / "decoder_model.onnx"), [START]
        for _ in range(NEW):
            logits = decoder.run(None, {"input_ids": np.array([ids]),
                                        "attention_mask": np.ones((1, len(ids)), np.int64),
                                        "encoder_hidden_states": states})[0]
            ids.append(int(logits[0, -1].argmax()))
        self.assertGreater(len(set(ids)), 4)
        flags = ("--features", self.dir / "features.npy")
        self.assertEqual(self.generate(*flags)["ids"], ids[1:])
        run = self.good("rewrite", traced / "decoder_model.onnx", "--pass", "insert-kv", "-o",
                        self.folder / "decoder.onnx")
        self.assertIn("4 attention nodes", run.out)
        done = self.generate(*flags)
        self.assertEqual((done["ids"], done["metrics"]["computed_tokens"]), (ids[1:], NEW))

    def test_no_branch(self):
        """For a decoder without use_cache_branch, empty caches mean that nothing has been projected
        yet; if their dimension has the name of the encoder's rows, it has no first call."""
        flags = self.make(cached=True)
        path = self.folder / "decoder.onnx"
        decoder = onnx.load(path)
        for value in decoder.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "cached_encoder_length":
                    dim.dim_param = "L"
        self.assertEqual(str(decoder).count('dim_param: "L"'), 9)  # four layers, and the states
        onnx.save(decoder, path)
        self.check(gqac("generate", self.folder, *flags, "-n", NEW), 4,
                   "dimension 'L' is 0 in input 'cache_k_in_")

    def test_traced_t5(self):
        """Position biases that the graph computes, gated layers, and a decoder with a past next to
        one without, as exporters write them if they are not merged."""
        traced = harness.ROOT / "test" / "traced" / "t5"
        shutil.copytree(traced, self.folder, dirs_exist_ok=True)
        self.ids = np.random.default_rng(11).integers(2, 61, STATES)
        flags = ("--ids", write_ids(self.dir / "ids.txt", self.ids))
        mask = np.ones((1, STATES), np.int64)
        states = session(traced / "encoder_model.onnx").run(
            None, {"input_ids": self.ids[None], "attention_mask": mask})[0]
        decoder, ids = session(traced / "decoder_model.onnx"), [0]
        for _ in range(NEW):
            feeds = {"input_ids": np.array([ids]), "encoder_hidden_states": states,
                     "encoder_attention_mask": mask}
            logits = decoder.run(["logits"], feeds)[0]
            ids.append(int(logits[0, -1].argmax()))
        self.assertGreater(len(set(ids)), 4)
        self.config(decoder_start_token_id=0)  # and no end id
        done = self.generate(*flags)
        self.assertEqual((done["ids"], done["metrics"]["computed_tokens"]), (ids[1:], NEW))
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
        self.good("run", traced / "decoder_model.onnx", "--inputs", self.dir, "-o",
                  self.dir / "out")
        self.close(np.load(self.dir / "out" / "logits.npy"), logits, 2e-5)
        drawn = self.generate(*flags, "--temperature", 3, "--seed", 4)["ids"]
        (self.folder / "decoder_with_past_model.onnx").unlink()
        done = self.generate(*flags)
        self.assertEqual(done["ids"], ids[1:])
        self.assertEqual(done["metrics"]["computed_tokens"], NEW * (NEW + 1) // 2)
        self.assertEqual(self.generate(*flags, "--temperature", 3, "--seed", 4)["ids"], drawn)

    def test_n19_end(self):
        """The loop ends with the end token, or at -n; without a tokenizer ids are printed."""
        flags = self.make(cached=True)
        expected = self.expected()
        at = next(i for i in range(2, NEW) if expected[i] not in expected[:i])
        self.config(eos_token_id=[58, expected[at]] if expected[0] != 58 else expected[at])
        done = self.generate(*flags)
        self.assertEqual((done["ids"], done["finish_reason"]), (expected[:at + 1], "eos"))
        out = self.good("generate", self.folder, *flags, "-n", 2).out
        self.assertEqual(out, " ".join(map(str, expected[:2])) + "\n")

    def test_sampling(self):
        """Sampled as elsewhere: dependent only on the seed, with or without caches; the likeliest
        id if only one is left; repetition counts earlier tokens, including the start token."""
        flags = self.make()
        greedy = self.generate(*flags)["ids"]
        for one in (("--temperature", 0), ("--top-k", 1, "--seed", 5), ("--top-p", 1e-9)):
            self.assertEqual(self.generate(*flags, *one)["ids"], greedy, one)
        drawn = [self.generate(*flags, "--temperature", 2, "--seed", s)["ids"] for s in range(3)]
        self.assertEqual(len({*map(tuple, drawn), tuple(greedy)}), 4)
        for ids in drawn:
            self.assertTrue(all(0 <= i < decoders.VOCABULARY for i in ids))
        apart = self.generate(*flags, "--repetition-penalty", 1e6)["ids"]
        self.assertEqual(len({START, *apart}), NEW + 1)
        (self.folder / "decoder_model.onnx").unlink()
        self.make(cached=True)
        again = self.generate(*flags, "--temperature", 2, "--seed", 1)["ids"]
        self.assertEqual(again, drawn[1])
        self.check(harness.gqac("generate", self.folder, *flags, "--top-p", 2), 2, "top_p")

    def test_text(self):
        """A tokenizer in the folder: text in, text out."""
        self.make(cached=True)
        shutil.copy(harness.MODELS / "llama" / "tokenizer.json", self.folder)
        text = "!!"
        self.ids = np.array(list(map(int, self.good(
            "tokenize", self.folder, "--text", text).out.split())))
        self.assertLess(self.ids.max(), decoders.VOCABULARY)
        done = self.generate("--prompt", text)
        write_ids(self.dir / "out.txt", done["ids"])
        said = self.good("tokenize", self.folder, "--decode", "--ids", self.dir / "out.txt").out
        self.assertEqual(done["text"].rstrip("\n"), said.rstrip("\n"))
        done = self.generate("--prompt", text, "--grammar", "root ::= [!-/]{3} [A-Z]")
        self.assertRegex(done["text"], r"^[!-/]{3}[A-Z]$")
        self.assertEqual(done["finish_reason"], "stop")

    def test_stop_and_log(self):
        """--stop ends the text as without an encoder, --log-steps prints every id."""
        self.make(cached=True)
        shutil.copy(harness.MODELS / "llama" / "tokenizer.json", self.folder)
        flags = ("--ids", self.dir / "ids.txt")
        whole = self.good("generate", self.folder, *flags, "-n", NEW, "--log-steps", "--format",
                          "json")
        done = whole.json()
        lines = [line.split() for line in whole.err.splitlines() if line.startswith("step ")]
        self.assertEqual([int(words[3]) for words in lines], done["ids"])
        self.assertEqual([words[8] for words in lines],
                         ["prefill"] + ["decode"] * (len(lines) - 1))
        self.assertTrue(all(0 < float(words[5]) <= 100 for words in lines))
        text = done["text"]
        stop = text[len(text) // 2:][:2]
        cut = self.good("generate", self.folder, *flags, "-n", NEW, "--stop", "never there",
                        "--stop", stop, "--format", "json").json()
        self.assertEqual((cut["text"], cut["finish_reason"]), (text[:text.index(stop)], "stop"))
        self.assertEqual(cut["ids"], done["ids"][:len(cut["ids"])])
        self.assertLess(len(cut["ids"]), len(done["ids"]))
        shown = self.good("generate", self.folder, *flags, "-n", NEW, "--stop", stop).out
        self.assertEqual(shown, text[:text.index(stop)] + "\n")

    def test_kinds(self):
        """Files whose contents do not match their names."""
        t5, llama = (harness.ROOT / "test" / "traced" / name for name in ("t5", "llama"))
        for encoder, decoder, later, words in (
                (t5 / "decoder_model.onnx", t5 / "decoder_model.onnx", None,
                 ("encoder_model.onnx", "not an encoder", "'encoder_hidden_states'")),
                (llama / "model.onnx", t5 / "decoder_model.onnx", None,
                 ("encoder_model.onnx", "not an encoder", "'past_key_values.0.key'")),
                (t5 / "encoder_model.onnx", t5 / "encoder_model.onnx", None,
                 ("decoder_model.onnx", "not a decoder", "'logits'")),
                (t5 / "encoder_model.onnx", llama / "model.onnx", None,
                 ("decoder_model.onnx", "no input 'encoder_hidden_states'")),
                (t5 / "encoder_model.onnx", t5 / "decoder_model.onnx", llama / "model.onnx",
                 ("decoder_with_past_model.onnx", "the cache 'past_key_values.0.key'"))):
            for path in self.folder.glob("*.onnx"):
                path.unlink()
            shutil.copy(t5 / "config.json", self.folder)
            shutil.copy(encoder, self.folder / "encoder_model.onnx")
            shutil.copy(decoder, self.folder / "decoder_model.onnx")
            if later:
                shutil.copy(later, self.folder / "decoder_with_past_model.onnx")
            run = harness.gqac("generate", self.folder, "--ids", self.dir / "ids.txt", "-n", 2)
            self.check(run, 3, *words)
            self.assertEqual(run.out, "", words)

    def test_refused(self):
        """Options and files that do not fit the folder."""
        flags = self.make()
        run = ("generate", self.folder)
        self.check(harness.gqac(*run), 2, "one of --prompt")
        self.check(harness.gqac(*run, *flags, "--prompt", "x"), 2, "one of --prompt")
        self.check(harness.gqac(*run, *flags, "--context", "9"), 2, "--context", "sequences", "-n")
        self.check(harness.gqac(*run, *flags, "--kv", "off"), 2, "--kv", "sequences", "all ids")
        for more in (("--speculate", "4"), ("--draft", "x")):
            self.check(harness.gqac(*run, *flags, *more), 2, more[0], "one new id")
        self.check(harness.gqac(*run, *flags, "--stop", "x"), 2, "tokenizer")
        self.check(harness.gqac(*run, *flags, "--stop", ""), 2, "--stop needs")
        self.check(harness.gqac(*run, "--features", self.dir / "features.npy"), 2, "--ids")
        self.check(harness.gqac("generate", harness.model("llama"), "--features", "x.npy"), 2,
                   "--features is for")
        for missing, other in (("encoder", "decoder"), ("decoder", "encoder")):
            path = self.folder / f"{missing}_model.onnx"
            path.rename(self.dir / "away")
            self.check(harness.gqac(*run, *flags), 5, f"has {other}_model.onnx but no {missing}",
                       f"{missing}.onnx")
            (self.dir / "away").rename(path)
        for verb, more in (("score", flags), ("inspect", ()), ("equiv", ()),
                           ("compile", ("-o", self.dir / "x.gqac"))):
            self.check(harness.gqac(verb, self.folder, *more), 5, "no genai_config.json",
                       "decoder_model.onnx, encoder_model.onnx", "gqac generate")
        write_ids(self.dir / "far.txt", [1, decoders.VOCABULARY])
        told = self.check(harness.gqac(*run, "--ids", self.dir / "far.txt"), 4,
                          f"{self.folder}/encoder_model.onnx, node '")
        self.assertEqual(told.err.count("node '"), 1, told.err)
        write_ids(self.dir / "negative.txt", [1, -1, 2])
        self.check(harness.gqac(*run, "--ids", self.dir / "negative.txt"), 4, "token id -1",
                   "index 1")
        for start in (-1, decoders.VOCABULARY):
            self.config(decoder_start_token_id=start)
            self.check(harness.gqac(*run, *flags), 3, f"decoder_start_token_id {start}")
        for end in (-1, [2, decoders.VOCABULARY]):
            self.config(decoder_start_token_id=START, eos_token_id=end)
            self.check(harness.gqac(*run, *flags), 3, "eos_token_id")
        (self.folder / "config.json").unlink()
        self.check(harness.gqac(*run, *flags), 3, "decoder_start_token_id")

    def test_damaged_settings(self):
        """A settings file must be complete if it exists."""
        flags = self.make()
        self.good("generate", self.folder, *flags)
        path = self.folder / "generation_config.json"
        for text, word in (("{trunc", "line 1"), ("[1, 2]", "not a JSON object"), ("", "line"),
                           ('{"decoder_start_token_id": "a"}', "decoder_start_token_id"),
                           ('{"decoder_start_token_id": [1, 2]}', "a list of 2"),
                           ('{"eos_token_id": "x"}', "eos_token_id"),
                           ('{"eos_token_id": [1, null]}', "eos_token_id"),
                           (json.dumps({"eos_token_id": list(range(17))}), "at most 16")):
            path.write_text(text, encoding="utf-8")
            self.check(harness.gqac("generate", self.folder, *flags), 3, "generation_config.json", word)
        path.write_text('{"eos_token_id": null}', encoding="utf-8")
        self.good("generate", self.folder, *flags)


if __name__ == "__main__":
    sys.exit(harness.main())
