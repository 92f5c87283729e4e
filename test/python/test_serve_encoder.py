#!/usr/bin/env python3
"""gqac serve with an encoder and a decoder: completions have the bits of the command line, with any
other clients; each answer waits for the previous ones, and all other requests are answered in the
meantime.

    python test/python/test_serve_encoder.py
"""

import concurrent.futures
import contextlib
import json
import re
import shutil
import signal
import sys
import time

import numpy as np
import onnx
import openai

import decoders
import harness
from harness import FULL, write_ids
from serving import POST, SETTINGS, SLOW, Server, absent
from test_translate import NEW, Folders

TEXT = "/v1/completions"
LONG = 10**6  # tokens; no test waits for all of them
ACCEPTED = {"host", "port", "api-key-file", "name", "queue", "context", "body-limit", "connections",
            "per-peer", "time-limit", "drain", "sandbox"}  # all other flags of `gqac serve` are for sequences


class Encoders(Folders):
    """A new folder and server for each test."""

    def setUp(self):
        super().setUp()
        self.flags = self.make(cached=True)
        shutil.copy(harness.MODELS / "llama" / "tokenizer.json", self.folder)

    def serve(self, *args):
        """A server that ends with the test."""
        return self.enterContext(Server("--threads", 1, *args, model=self.folder))

    def want(self, source, *flags, n=NEW):
        """The JSON of the command line."""
        how = ("--prompt", source) if isinstance(source, str) else (
            "--ids", write_ids(self.dir / "source.txt", source))
        return self.good("generate", self.folder, *how, "-n", n, "--format", "json",
                         "--top-logprobs", 3, *flags).json()

    @staticmethod
    def body(source, most=NEW, **fields):
        """A request that returns ids and log-probabilities."""
        return {"prompt": source, "max_tokens": most, "return_token_ids": True, "logprobs": 3, **fields}

    def same(self, choice, want):
        """A choice has the ids, the text and the bits of the command line."""
        self.assertEqual((choice["token_ids"], choice["text"]), (want["ids"], want["text"]))
        self.assertEqual(choice["logprobs"]["token_logprobs"], [x["logprob"] for x in want["logprobs"]])
        for got, one in zip(choice["logprobs"]["top_logprobs"], want["logprobs"]):
            self.assertLessEqual({x["logprob"] for x in one["top"]}, set(got.values()))
        self.assertEqual(choice["finish_reason"],
                         "length" if want["finish_reason"] == "length" else "stop")

    def open_stream(self, server, **fields):
        """A connection on which the first token of a long answer has arrived."""
        body = json.dumps({"prompt": "!!", "max_tokens": LONG, "stream": True, **fields}).encode()
        s = self.enterContext(contextlib.closing(server.connect()))
        s.sendall(POST % (len(body), body))
        while b"data: " not in s.recv(65536):
            pass
        return s

    def test_bits(self):
        """Ids, texts and log-probabilities, sampled and greedy, for texts and for ids, whole and
        streamed; ended by an end token, a stop text and a grammar."""
        ids = self.ids.tolist()
        half, other = (self.want(source)["text"][-2:] + "~" for source in ("!A!", ids))
        rules = "root ::= [!-/]{3} [A-Z]"
        cases = [*(x for x in SETTINGS if not x[0].keys() & {"stop", "logit_bias"}),
                 ({"stop": ["YY", "!*"]}, ("--stop", "YY", "--stop", "!*")),
                 ({"stop": [half, other]}, ("--stop", half, "--stop", other)),  # held back to the
                                                                                # end
                 ({"seed": 2, "logit_bias": {"9": 1.5, "60": -100}},
                  ("--seed", 2, "--logit-bias", "9=1.5", "--logit-bias", "60=-100")),
                 ({"seed": 5, "grammar": rules}, ("--seed", 5, "--grammar", rules))]
        ended = self.want(ids, "--temperature", 2, "--seed", 4)["ids"]
        self.config(eos_token_id=ended[5])
        wants = {}
        with Server("--threads", 2, model=self.folder) as server:
            for fields, flags in [*cases, ({"seed": 4, "temperature": 2}, ("--seed", 4, "--temperature", 2))]:
                for source in ("!A!", ids):
                    with self.subTest(fields=fields, source=source):
                        want = self.want(source, *flags)
                        wants[want["finish_reason"]] = want
                        self.same(server.good(TEXT, self.body(source, **fields))["choices"][0], want)
                        _, said = server.request(TEXT, self.body(source, stream=True, **fields))
                        lines = said.strip().split("\n\n")
                        self.assertEqual(lines.pop(), "data: [DONE]")
                        choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
                        self.assertEqual(sum((c["token_ids"] for c in choices), []), want["ids"])
                        self.assertEqual("".join(c["text"] for c in choices), want["text"])
            self.assertEqual(wants.keys(), {"eos", "length", "stop"})
            drawn = self.body(ids, seed=4, temperature=2, ignore_eos=True)
            self.assertEqual(server.good(TEXT, drawn)["choices"][0]["token_ids"], ended)
            (cut,) = server.good(TEXT, {**drawn, "stop_token_ids": [ended[3]]})["choices"]
            self.assertEqual(cut["token_ids"], ended[:ended.index(ended[3]) + 1])
            self.assertEqual(server.stop(), 0)

    def test_client(self):
        """The official client: prompts as an array, n answers for each, usage, models, tokens."""
        server = self.serve("--name", "t5")
        client = self.enterContext(openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0))
        (model,) = client.models.list().data
        self.assertEqual(model.id, "t5")
        self.assertRegex(model.model_extra["system_fingerprint"],
                         r"^gqac-n1/cpu/.*/model-[0-9a-f]{16}/text-[0-9a-f]{16}$")
        sources = [[3, 4, 5, 6], [7, 8]]
        asked = {"model": "t5", "prompt": sources, "n": 3, "seed": 6, "max_tokens": 9, "temperature": 2,
                 "extra_body": {"return_token_ids": True}}
        reply = client.completions.create(**asked)
        self.assertEqual([c.index for c in reply.choices], list(range(6)))
        found = [c.model_extra["token_ids"] for c in reply.choices]
        for i, source in enumerate(sources):
            want = self.want(source, "--seed", 6, "--temperature", 2, n=9)
            self.assertEqual(found[3 * i], want["ids"])
            self.assertEqual(len(set(map(tuple, found[3 * i:3 * i + 3]))), 3)
        self.assertEqual((reply.usage.prompt_tokens, reply.usage.completion_tokens), (6, 54))
        self.assertEqual(reply.usage.prompt_tokens_details.cached_tokens, 0)
        chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        self.assertEqual((chunks[-1].choices, chunks[-1].usage), ([], reply.usage))
        for i, ids in enumerate(found):
            self.assertEqual(ids, sum((c.model_extra["token_ids"] for chunk in chunks
                                       for c in chunk.choices if c.index == i), []))
        self.assertEqual(client.completions.create(model="t5", prompt="!!").usage.completion_tokens, 16)
        self.assertEqual(server.good("/tokenize", {"content": "!!"})["tokens"], [0, 0])
        self.assertEqual(server.good("/detokenize", {"tokens": [0, 36]})["content"], "!E")
        for name, count in (("computed", 2 * 3 * 6 + 2 * 54 + 2 + 16), ("new", 2 * 54 + 16),
                            ("reused", 0)):
            self.assertEqual(server.metric(f"gqac_{name}_tokens_total"), count, name)
        self.assertEqual(server.metric("gqac_steps_total"), 2 * 54 + 16)
        self.assertGreater(server.metric("gqac_memory_bytes"), 0)

    def test_load(self):
        """16 clients at the same time: no id and no bit differs from the command line."""
        cases = [(self.ids.tolist()[k % 5:], *SETTINGS[k % 5]) for k in range(10)]
        wants = [self.want(source, *flags) for source, _, flags in cases]
        server = self.serve()

        def ask(k):
            source, fields, _ = cases[k % len(cases)]
            return server.good(TEXT, self.body(source, **fields))["choices"][0]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for k, choice in enumerate(pool.map(ask, range(500 if FULL else 96))):
                self.same(choice, wants[k % len(cases)])

    def test_busy(self):
        """While an answer is computed, others wait for it, until the queue is full; all other
        requests are answered at once. If its client disconnects, it ends at once, and so does one
        that waits."""
        (self.folder / "decoder.onnx").unlink()
        self.make()  # a decoder that computes all ids in every step
        server = self.serve("--queue", 2, "--context", LONG)
        long = self.open_stream(server, ignore_eos=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waits = pool.submit(server.good, TEXT, self.body("!!", most=3))
            server.await_metric("gqac_requests_waiting", 1)
            impatient = server.connect()
            body = json.dumps(self.body("!!", most=LONG)).encode()
            impatient.sendall(POST % (len(body), body))
            server.await_metric("gqac_requests_waiting", 2)
            status, reply = server.request(TEXT, self.body("!!"))
            self.assertEqual((status, reply["error"]["code"]), (429, "busy"))
            for path in ("/health", "/v1/models", "/metrics"):
                began = time.monotonic()
                self.assertEqual(server.request(path)[0], 200)
                self.assertLess(time.monotonic() - began, 0.5 * SLOW)
            self.assertEqual(server.request(TEXT, self.body("!!", n=4))[0], 400)  # four places of
                                                                                  # three
            impatient.close()
            self.assertLess(server.await_metric("gqac_requests_waiting", 1), 0.1 * SLOW)
            last = pool.submit(server.good, TEXT, self.body("!A", most=3))
            server.await_metric("gqac_requests_waiting", 2)
            self.assertFalse(waits.done())
            long.close()
            self.assertLess(server.await_metric("gqac_requests_running", 0), 0.1 * SLOW)
            for source, reply in (("!!", waits), ("!A", last)):
                self.same(reply.result()["choices"][0], self.want(source, n=3))
        self.assertEqual(server.stop(), 0)
        found = [line["status"] for line in server.lines() if "usage" in line]
        self.assertEqual(sorted(found), [200, 200, 499, 499])

    def test_limits(self):
        """--time-limit ends both the current and the waiting answer; a second signal ends what the
        first one waits for."""
        server = self.serve("--time-limit", 1, "--context", LONG)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for status, reply in pool.map(lambda _: server.request(
                    TEXT, {"prompt": "!!", "max_tokens": LONG}), range(2)):
                self.assertEqual((status, reply["error"]["code"]), (503, "time_limit"))
            self.assertEqual(len(server.good(TEXT, self.body("!!"))["choices"][0]["token_ids"]), NEW)
        server = self.serve("--drain", 60, "--queue", 0, "--context", LONG)
        for _ in range(9):  # one place, which is free again when its client has the answer
            server.good(TEXT, self.body("!!", most=1))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ends = pool.submit(server.request, TEXT, {"prompt": "!!", "max_tokens": LONG})
            server.await_metric("gqac_requests_running", 1)
            server.child.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.assertFalse(ends.done())
            self.assertEqual(server.stop(), 0)
            self.assertEqual(ends.result()[0], 503)

    def test_refused(self):
        """Unsupported fields are named; so are a prompt or an answer that is too long, with any
        length of the folder's path."""
        deep = self.dir / ("a" * 200) / ("b" * 200)
        shutil.copytree(self.folder, deep)
        self.folder = deep
        server = self.serve()
        self.assertIn("/v1/chat/completions, /v1/responses and /apply-template are refused: the model "
                      "has an encoder", server.errors())
        hello = {"messages": [{"role": "user", "content": "x"}]}
        for path, body, param, words in (
                ("/v1/chat/completions", hello, None, "has an encoder"),
                ("/v1/responses", {"input": "x"}, None, "has an encoder"),
                ("/apply-template", hello, "messages", "no chat template"),
                *((TEXT, {"prompt": "!!", field: True}, field, "has an encoder")
                  for field in ("verify_cache", "echo", "return_progress")),
                (TEXT, {"prompt": "!!", "verify_cache": 1}, "verify_cache", "must be false"),
                (TEXT, {"prompt": []}, "prompt", "empty"),
                (TEXT, {"prompt": [-1]}, "prompt", "item 0"),
                *((TEXT, {"prompt": [1, decoders.VOCABULARY], "stream": stream}, "prompt",
                   "the model cannot read the prompt") for stream in (False, True)),
                (TEXT, {"prompt": "!!", "logit_bias": {"61": 1}}, "logit_bias", "to 60")):
            with self.subTest(path=path, body=body):
                status, reply = server.request(path, body)
                self.assertEqual((status, reply["error"]["param"]), (400, param))
                self.assertIn(words, reply["error"]["message"])
                self.assertNotIn(str(self.dir), reply["error"]["message"])
        off = {field: False for field in ("verify_cache", "echo", "return_progress")}
        reply = server.good(TEXT, self.body("!!", logprobs=None, **off))
        self.assertEqual(reply["choices"][0]["token_ids"], self.want("!!")["ids"])

    def test_context(self):
        """--context, or 4096, is the maximum for a prompt and for an answer, separately."""
        def refused(server, param, **body):
            status, reply = server.request(TEXT, body)
            self.assertEqual((status, reply["error"]["param"]), (400, param))
            self.assertEqual(reply["error"]["code"], "context_length_exceeded")

        server = self.serve("--context", 9)
        self.assertEqual(server.good("/v1/models")["data"][0]["max_model_len"], 9)
        refused(server, "prompt", prompt=[3] * 10)
        refused(server, "prompt", prompt=[[3], [3] * 10])
        refused(server, "max_tokens", prompt=[3], max_tokens=10, ignore_eos=True)
        for body in ({}, {"max_tokens": 9}):
            reply = server.good(TEXT, {"prompt": [3] * 9, "ignore_eos": True, **body})
            self.assertEqual(reply["usage"]["completion_tokens"], 9)
        server = self.serve()
        refused(server, "prompt", prompt=[3] * 4097)
        refused(server, "max_tokens", prompt=[3], max_tokens=4097, ignore_eos=True)
        server.good(TEXT, {"prompt": [3], "max_tokens": 4096, "stop_token_ids": list(range(60))})

    def test_memory(self):
        """A prompt or an answer that can never fit --limit memory-bytes is an error of the
        request."""
        (self.folder / "decoder.onnx").unlink()
        self.make()  # a decoder that computes all ids in every step
        server = self.serve("--limit", "memory-bytes=500000")
        for param, body in (("prompt", {"prompt": [3] * 4000}),
                            ("max_tokens", {"prompt": [3], "max_tokens": 4000, "ignore_eos": True})):
            status, reply = server.request(TEXT, body)
            self.assertEqual((status, reply["error"]["param"]), (400, param))
            self.assertIn("memory budget", reply["error"]["message"])
            self.assertNotIn("memory-bytes", reply["error"]["message"])
        server.good(TEXT, {"prompt": [3], "max_tokens": 2})

    def test_positions(self):
        """An answer that needs more positions than the decoder has."""
        (self.folder / "decoder.onnx").unlink()
        self.make()
        path = self.folder / "decoder_model.onnx"
        model = onnx.load(path)
        graph, add = model.graph, onnx.helper.make_node
        last = next(n for n in graph.node if "logits" in n.output)
        last.output[list(last.output).index("logits")] = "logits before"
        for name, value in (("its table", np.zeros(9, np.float32)), ("its one", np.array(1))):
            graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        graph.node.extend([add("Shape", ["input_ids"], ["its length"], start=1, end=2),
                           add("Sub", ["its length", "its one"], ["its position"]),
                           add("Gather", ["its table", "its position"], ["its zero"]),
                           add("Add", ["logits before", "its zero"], ["logits"])])
        onnx.save(model, path)
        server = self.serve()
        self.assertEqual(len(server.good(TEXT, self.body("!!", most=9))["choices"][0]["token_ids"]), 9)
        status, reply = server.request(TEXT, self.body("!!", most=10))
        self.assertEqual((status, reply["error"]["param"]), (400, "max_tokens"))
        self.assertIn("cannot continue after 9 tokens", reply["error"]["message"])

    def test_command_line(self):
        """Flags that need sequences, encoders of features, and a folder without a tokenizer."""
        offered, _ = self.good("serve", "--help").out.split("\ncommon flags:")
        offered = set(re.findall(r"^  --([a-z-]+)", offered, re.M))
        self.assertLessEqual(ACCEPTED, offered)
        refused = [("serve", flag) for flag in offered - ACCEPTED]
        refused += [("generate", flag) for _, flag in refused if re.match("prefix|store|remote", flag)]
        for verb, flag in refused:
            self.check(harness.gqac(verb, self.folder, f"--{flag}", 9), 2, f"--{flag} is for sequences")
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.make(features=True)
        self.check(harness.gqac("serve", self.folder, "--port", 0), 3, "takes features", "--features")
        (self.folder / "encoder_model.onnx").unlink()
        self.make(cached=True)
        server = self.serve()
        self.assertIn("texts in /v1/completions are refused: the model has no tokenizer", server.errors())
        ids = self.ids.tolist()
        reply = server.good(TEXT, {"prompt": ids, "max_tokens": NEW, "return_token_ids": True})
        self.assertEqual(reply["choices"][0]["token_ids"], self.generate(*self.flags)["ids"])
        self.assertEqual(server.request(TEXT, {"prompt": "x"})[0], 400)

    def test_fingerprint(self):
        """The fingerprint distinguishes models and settings, not folders."""
        def fingerprint():
            with Server("--threads", 1, model=self.folder) as server:
                return server.good("/v1/models")["data"][0]["system_fingerprint"]
        one = fingerprint()
        moved = self.dir / "elsewhere"
        shutil.copytree(self.folder, moved)
        self.folder = moved
        self.assertEqual(fingerprint(), one)
        seen = {one}
        for end in (5, 6, [5, 6]):
            self.config(eos_token_id=end)
            seen.add(fingerprint())
        self.config(decoder_start_token_id=4)
        seen.add(fingerprint())
        for rules in ({"suppress_tokens": [7]}, {"suppress_tokens": [8]}, {"bad_words_ids": [[7, 8]]}):
            self.config(**rules)
            seen.add(fingerprint())
        self.config()
        (self.folder / "decoder.onnx").unlink()
        self.make()
        seen.add(fingerprint())
        self.assertEqual(len(seen), 9)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
