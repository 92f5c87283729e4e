#!/usr/bin/env python3
"""gqac serve: the replies to the official client of OpenAI's API, with the bits of the command
line, whatever else the server does.

    python test/python/test_serve.py
"""

import concurrent.futures
import json
import re
import shutil
import signal
import socket
import sys
import time
import urllib.request

import openai

import harness
from harness import Case, FULL, GQAC, gqac, write_ids
from serving import (POST, PROMPT, SETTINGS, SLOW, TINY, Compared, Server, absent, events,
                     words)
from test_invariance import insert, node


class Served(Compared):
    """Tests that share one server."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", 2)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def test_bits(self):
        """Ids, texts and log-probabilities of the command line, cold and cached, sampled and
        greedy."""
        for fields, flags in SETTINGS:
            with self.subTest(fields=fields):
                want = self.generate(PROMPT, *flags)
                for _ in range(2):
                    reply = self.completion(**fields)
                    self.same(reply["choices"][0], want)
                self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"],
                                 reply["usage"]["prompt_tokens"] - 1)
                self.assertEqual(reply["choices"][0]["finish_reason"],
                                 "length" if want["finish_reason"] == "length" else "stop")

    def test_models(self):
        """The list of models, and the fields that identify one."""
        (model,) = self.client.models.list().data
        self.assertEqual((model.id, model.object), ("tiny-gqa", "model"))
        reply = self.client.completions.create(model="tiny-gqa", prompt="x", max_tokens=1)
        self.assertRegex(reply.system_fingerprint, r"^gqac-n1/cpu/.*/model-[0-9a-f]{16}/text-[0-9a-f]{16}$")

    def test_chat(self):
        """A conversation has the answers of `gqac chat`, whole and streamed."""
        typed = self.dir / "typed"
        typed.write_text("How do you do?\nAnd Emma?\n")
        with open(typed, "rb") as stdin:
            said = self.check(gqac("chat", TINY, "-q", "-n", 12, "--seed", 5, "--system", "Be kind.",
                                   "--format", "json", stdin=stdin), 0)
        messages = [{"role": "system", "content": "Be kind."}]
        for line, turn in zip(typed.read_text().splitlines(), said.out.splitlines()):
            want = json.loads(turn)
            messages.append({"role": "user", "content": [{"type": "text", "text": line}]})
            settings = {"model": "x", "messages": messages, "max_completion_tokens": 12, "seed": 5}
            reply = self.client.chat.completions.create(
                **settings, extra_body={"return_token_ids": True})
            choice = reply.choices[0]
            self.assertEqual(choice.message.content, want["text"])
            self.assertEqual(choice.model_extra["token_ids"], want["ids"])
            self.assertEqual(choice.message.role, "assistant")
            chunks = list(self.client.chat.completions.create(
                **settings, stream=True, stream_options={"include_usage": True}))
            self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
            self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                             want["text"])
            self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")
            self.assertEqual(chunks[-1].choices, [])
            self.assertEqual(chunks[-1].usage.completion_tokens, 12)
            self.assertEqual({c.id for c in chunks}, {chunks[0].id})
            messages.append({"role": "assistant", "content": want["text"]})
        self.assertGreater(chunks[-1].usage.prompt_tokens_details.cached_tokens, 20)

    def test_responses(self):
        """A response equals the chat with the same messages, whole and as events."""
        want = self.server.good(
            "/v1/chat/completions", {"max_tokens": 20, "seed": 3, "stop": ["e"], "messages": [
                {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Emma?"}]})
        text = want["choices"][0]["message"]["content"]
        for given in ("Emma?", [{"role": "user", "content": [{"type": "input_text", "text": "Emma?"}]}]):
            asked = {"model": "x", "instructions": "Be kind.", "input": given,
                     "max_output_tokens": 20, "extra_body": {"seed": 3, "stop": ["e"]}}
            reply = self.client.responses.create(**asked, store=False)
            self.assertEqual((reply.output_text, reply.status), (text, "completed"))
            self.assertEqual(reply.usage.input_tokens, want["usage"]["prompt_tokens"])
            self.assertEqual(reply.usage.input_tokens_details.cached_tokens,
                             reply.usage.input_tokens - 1)
            with self.client.responses.stream(**asked) as stream:
                events = list(stream)
                self.assertEqual(stream.get_final_response().output_text, text)
            self.assertEqual([e.sequence_number for e in events if hasattr(e, "sequence_number")],
                             list(range(len(events))))
        reply = self.client.responses.create(model="x", input="Emma?", max_output_tokens=2)
        self.assertEqual((reply.status, reply.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))

    def test_stream(self):
        """A streamed completion equals the whole one; the last line is [DONE]."""
        want = self.generate(PROMPT, "--seed", 2, n=40)
        body = {"prompt": PROMPT, "max_tokens": 40, "seed": 2, "stream": True, "logprobs": 0,
                "return_token_ids": True}
        status, text = self.server.request("/v1/completions", body)
        self.assertEqual((status, text.splitlines()[-2:]), (200, ["data: [DONE]", ""]))
        choices = [event["choices"][0] for event in events(text)]
        self.assertEqual("".join(c["text"] for c in choices), want["text"])
        self.assertEqual(sum((c["token_ids"] for c in choices), []), want["ids"])
        self.assertEqual(sum((c["logprobs"]["token_logprobs"] for c in choices), []),
                         [x["logprob"] for x in want["logprobs"]])

    def test_chat_logprobs(self):
        """Log-probabilities of a chat, with the bytes of tokens."""
        reply = self.client.chat.completions.create(
            model="x", messages=[{"role": "user", "content": "Yes?"}], max_tokens=5, logprobs=True,
            top_logprobs=4, seed=1)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), 5)
        self.assertEqual(b"".join(bytes(t.bytes) for t in content).decode(),
                         reply.choices[0].message.content)
        for token in content:
            values = [t.logprob for t in token.top_logprobs]
            self.assertEqual((len(values), values), (4, sorted(values, reverse=True)))
            self.assertLessEqual(token.logprob, values[0])

    def test_echo(self):
        """A prompt is scored as by `gqac score`, cached or not, for texts, ids and lists."""
        ids = [0, *gqac("tokenize", TINY, "--text", words(4, 200)).out.split()][1:]
        ids = [int(i) for i in ids]
        want = self.good("score", TINY, "--ids", write_ids(self.dir / "s", ids), "--format",
                         "json").json()
        for n in (0, 1):
            reply = self.completion(ids, most=n, echo=True, logprobs=1)
            scores = reply["choices"][0]["logprobs"]
            values = scores["token_logprobs"][:len(ids)]
            self.assertEqual((values[0], len(scores["token_logprobs"])), (None, len(ids) + n))
            self.assertLess(abs(sum(values[1:]) + want["nll"]), 1e-9 * want["nll"])
            self.assertEqual(reply["usage"]["completion_tokens"], n)
            for value, top in list(zip(values, scores["top_logprobs"]))[1:]:
                self.assertGreaterEqual(max(top.values()), value)
        text = "Emma was \u00e9l\u00e9gante."
        choices = self.completion([text, words(1, 9)], most=2, echo=True)["choices"]
        self.assertTrue(choices[0]["text"].startswith(text))
        self.assertEqual([c["index"] for c in choices], [0, 1])
        offsets = choices[0]["logprobs"]["text_offset"]
        self.assertEqual(offsets, sorted(offsets))
        self.assertEqual(offsets[-2], len(text))

    def test_choices(self):
        """The first of n choices is that of n = 1; the others are sampled independently; the prompt
        is computed once."""
        text = words(11, 90)
        want = self.generate(text, "--seed", 6)
        self.server.await_metric("gqac_requests_running", 0)
        before = self.server.metric("gqac_computed_tokens_total")
        reply = self.completion(text, seed=6, n=4)
        self.same(reply["choices"][0], want)
        self.assertEqual(len({tuple(c["token_ids"]) for c in reply["choices"]}), 4)
        usage = reply["usage"]
        self.server.await_metric(  # counted after the step that ends the answers
            "gqac_computed_tokens_total",
            before + usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            + 3 + 4 * 15)

    def test_verify(self):
        """A request that is computed again without the cache has the same ids and logits."""
        text = words(5, 60)
        self.completion(text)
        for fields in ({"seed": 4}, {"n": 3, "temperature": 0.7, "ignore_eos": True}):
            reply = self.completion(text, verify_cache=True, **fields)
            self.assertGreater(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 60)
            self.assertEqual(reply["verify_cache"], {
                "equal": True, "tokens": 16 * fields.get("n", 1), "differing_ids": 0,
                "same_logits": True})

    def test_constraint(self):
        """Answers of a given form: the same as on the command line, with every endpoint."""
        schema = {"type": "object", "properties": {
            "mood": {"enum": ["glad", "vexed"]}, "words": {"type": "array", "maxItems": 2, "items": {
                "type": "string", "maxLength": 9}}}, "required": ["mood", "words"]}
        given = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        want = self.generate(PROMPT, "--seed", 4, "--json-schema", json.dumps(schema), n=90)
        reply = self.completion(most=90, seed=4, response_format=given, n=2, verify_cache=True)
        self.same(reply["choices"][0], want)
        self.assertTrue(reply["verify_cache"]["equal"])
        for choice in reply["choices"]:
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(list(json.loads(choice["text"])), ["mood", "words"])
        for k in [0, *range(12), 0, 3]:  # more schemas than are kept, and some of them again
            one = {"enum": [f"mood {k}", k]}
            said = self.completion(most=20, seed=4, json_schema=one)["choices"][0]["text"]
            self.assertIn(json.loads(said), one["enum"])
        same = self.completion(most=90, seed=4, json_schema=schema)["choices"][0]
        self.assertEqual(same["token_ids"], want["ids"])
        rules = 'root ::= " "? ("yes" | "no") "."'
        want = self.generate(PROMPT, "--seed", 1, "--grammar", rules)
        self.same(self.completion(seed=1, grammar=rules)["choices"][0], want)
        chat = {"model": "x", "seed": 2, "messages": [{"role": "user", "content": "Emma?"}]}
        parts = self.client.chat.completions.create(**chat, response_format=given, stream=True,
                                                    max_completion_tokens=90)
        said = json.loads("".join(part.choices[0].delta.content or "" for part in parts))
        self.assertIn(said["mood"], ("glad", "vexed"))
        whole = self.client.chat.completions.create(
            **chat, response_format={"type": "json_object"}, max_completion_tokens=5)
        self.assertTrue(whole.choices[0].message.content.startswith("{"))
        reply = self.client.responses.create(
            model="x", input="Emma?", max_output_tokens=90, extra_body={"seed": 2},
            text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
        self.assertEqual((json.loads(reply.output_text), reply.text.format.type),
                         (said, "json_schema"))

    def test_models(self):
        """The list contains the model, which is found by its name only."""
        [model] = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(model.id), model)
        name = "".join(f"%{byte:02x}" for byte in model.id.encode())
        self.assertEqual(self.server.good(f"/v1/models/{name}")["id"], model.id)
        for other in ("x", model.id[:-1], model.id + "x", "%", "%4", "%zz", ""):
            status, reply = self.server.request(f"/v1/models/{other}")
            self.assertEqual((status, reply["error"]["code"]), (404, "model_not_found"), other)
        self.assertEqual(self.server.request(f"/v1/models/{name}", {})[0], 405)
        self.assertEqual(self.server.metric('gqac_requests_total{path="/v1/models/",status="200"}'), 2)

    def test_echo(self):
        """A response repeats fields of the request; the fields that it lacks are null or
        missing."""
        asked = {"input": "x", "max_output_tokens": 3, "metadata": {"a": "b"}, "instructions": "Be kind.",
                 "reasoning": {"effort": "low"}}
        reply = self.server.good("/v1/responses", asked)
        self.assertEqual({k: reply[k] for k in asked if k != "input"},
                         {k: v for k, v in asked.items() if k != "input"})
        reply = self.server.good("/v1/responses", {"input": "x", "seed": 1})
        self.assertEqual([reply[k] for k in ("max_output_tokens", "metadata", "instructions", "reasoning")],
                         [None, {}, None, None])

    def test_digits(self):
        """Numbers that a reply repeats have no more digits than in the request."""
        schema = '{"type":"number","minimum":0.1,"maximum":1e-05,"x":[5e-324,123456789.123,0.30000000000000004]}'
        asked = json.dumps({"input": "x", "max_output_tokens": 1, "temperature": 0.7, "top_p": 0.9,
                            "tools": [{"type": "function", "name": "f", "parameters": {"x": 0}}]})
        for stream in ("false", "true"):
            body = asked.replace('{"x": 0}', schema)[:-1] + f', "stream": {stream}}}'
            ask = urllib.request.Request(self.server.url + "/v1/responses", data=body.encode(),
                                         headers={"Content-Type": "application/json"})
            with urllib.request.urlopen(ask) as reply:
                text = reply.read().decode()
            for part in (schema, '"temperature":0.7,', '"top_p":0.9,'):
                self.assertIn(part, text)

    def test_errors(self):
        """Errors that the client recognises, with the field that caused them."""
        ask = self.client.chat.completions.create
        hello = [{"role": "user", "content": "Hello"}]
        for param, fields in (("temperature", {"temperature": -1}), ("n", {"n": 0}),
                              ("response_format", {"response_format": {"type": "json_schema",
                                                                       "json_schema": {}}}),
                              ("tool_choice", {"tool_choice": "required"}),
                              ("messages", {"messages": []})):
            with self.assertRaises(openai.BadRequestError) as caught:
                ask(**{"model": "x", "messages": hello, "max_tokens": 1, **fields})
            self.assertEqual(caught.exception.param, param)
            self.assertIn(param, caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(model="x", messages=[{"role": "user", "content": "word " * 2000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client.embeddings.create(model="x", input="x")
        self.assertEqual(caught.exception.status_code, 501)
        self.assertIn("embeddings", caught.exception.message)
        reply = ask(model="x", messages=hello, max_tokens=1, extra_body={"unknown": {"a": [1]}})
        self.assertEqual(reply.usage.completion_tokens, 1)

    def test_tokens(self):
        """Texts to ids and back, and only the template."""
        ids = self.server.good("/tokenize", {"content": "It was", "add_special": False})["tokens"]
        want = gqac("tokenize", TINY, "--text", "It was").out.split()
        self.assertEqual([0, *ids], [int(i) for i in want])
        self.assertEqual(self.server.good("/detokenize", {"tokens": ids})["content"], "It was")
        body = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs":
                {"add_generation_prompt": False}}
        self.assertEqual(self.server.good("/apply-template", body)["prompt"], '<s>"x"\n\n')

    def test_closed_stream(self):
        """A client that closes its stream ends the work for it."""
        stream = self.client.completions.create(model="x", prompt="I", max_tokens=1200, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.await_metric("gqac_requests_running", 0)

class Drafting(Case):
    """Servers with --speculate."""

    def test_drafts(self):
        """Replies equal those of a server without drafts, alone and together; steps are saved.
        `usage` has the same tokens, and also the numbers of accepted and rejected drafts."""
        text = " ".join([words(1, 12)] * 6)
        schema = {"type": "array", "items": {"enum": ["she had", "he was"]}, "minItems": 9, "maxItems": 9}
        bodies = [{"prompt": text, "max_tokens": 48, "repetition_penalty": 0.7, "logprobs": 2, **fields}
                  for fields in (*(fields for fields, _ in SETTINGS), {"n": 3, "seed": 2},
                                 {"stop": ["was a", "Emma"]}, {"ignore_eos": True, "top_k": 4, "seed": 9},
                                 {"json_schema": schema, "seed": 4}, {"verify_cache": True})]

        def ask(server, body):
            reply = server.good("/v1/completions", {**body, "return_token_ids": True})
            details = reply["usage"]["completion_tokens_details"]
            counted.append([details.pop(f"{what}_prediction_tokens")
                            for what in ("accepted", "rejected")])
            return {key: reply[key] for key in reply if key not in ("id", "created")}


        with Server("--threads", 1) as plain, Server("--threads", 1, "--speculate", 6) as drafting:
            counted = []
            wants = [ask(plain, body) for body in bodies]
            self.assertEqual(sum(map(sum, counted)), 0)
            counted = []
            self.assertEqual([ask(drafting, body) for body in bodies[:-1]], wants[:-1])
            accepted, rejected = map(sum, zip(*counted))
            drafting.await_metric("gqac_accepted_tokens_total", accepted)
            drafting.await_metric("gqac_drafted_tokens_total", accepted + rejected)
            self.assertGreater(min(accepted, rejected), 0)
            self.assertEqual(ask(drafting, bodies[-1]), wants[-1])  # its cold answer also uses
                                                                    # drafts
            _, stream = drafting.request("/v1/completions", {**bodies[0], "stream": True})
            self.assertEqual("".join(e["choices"][0]["text"] for e in events(stream)),
                             wants[0]["choices"][0]["text"])
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda body: ask(drafting, body), bodies * 2))
            self.assertEqual([r["choices"] for r in found], [r["choices"] for r in wants * 2])
            self.assertGreater(drafting.metric("gqac_accepted_tokens_total"), 0)
            self.assertGreaterEqual(drafting.metric("gqac_drafted_tokens_total"),
                                    drafting.metric("gqac_accepted_tokens_total"))
            self.assertEqual(plain.metric("gqac_drafted_tokens_total"), 0)

    def test_states(self):
        """The same for a model with recurrent states, whose next turns reuse most of the
        answers."""
        ids, total = [11, 77, 205, 11, 42] * 6, 0
        bodies = [{"prompt": ids + [11 + i], "max_tokens": 40, "ignore_eos": True, **fields,
                   "repetition_penalty": 0.7, "return_token_ids": True, "logprobs": 1}
                  for i in range(3) for fields in (
                      {}, {"seed": i}, {"n": 2, "seed": i, "logit_bias": {"11": 9, "42": 9}},
                      {"seed": i, "logit_bias": {"77": 100}})]  # answers that repeat themselves

        def ask(server, body):
            return server.good("/v1/completions", body)["choices"]

        model = harness.model("qwen3.5").parent
        with (Server("--threads", 1, model=model) as plain,
              Server("--threads", 1, "--speculate", 6, model=model) as drafting):
            wants = [ask(plain, body) for body in bodies]
            self.assertEqual([ask(drafting, body) for body in bodies], wants)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                self.assertEqual(list(pool.map(lambda b: ask(drafting, b), bodies)), wants)
            for body, want in zip(bodies, wants):
                answer = {**body, "prompt": body["prompt"] + want[0]["token_ids"] + [7], "n": 1}
                reply = drafting.good("/v1/completions", answer)
                self.assertEqual(reply["choices"], ask(plain, answer))
                total += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertGreater(drafting.metric("gqac_accepted_tokens_total"), 0)
            self.assertGreater(total, len(bodies) * 60)

    def test_none(self):
        """A model for which drafts are impossible is served without them, and the server says
        why."""
        last = self.dir / "last.onnx"
        insert([node("ReduceMax", "x axis", "y", keepdims=1)], last)
        with Server("--threads", 1, "--speculate", 6, model=last) as server:
            self.assertIn("gqac: no speculation: the model returns the logits of the last token only",
                          server.errors())
        self.check(gqac("serve", TINY, "--speculate", 65), 2, "--speculate '65'", "0 to 64")


class Lives(Case):
    """Servers with different settings: start, stop, keys, limits."""

    def test_keys(self):
        """Each key has its tenant; without a key only /health and the page are answered."""
        file = self.dir / "keys"
        file.write_text("# two of one tenant\nred key-1\nred key-2\n\nkey-3\n")
        body = {"prompt": words(3, 80), "max_tokens": 1}
        with Server("--api-key-file", file, "--host", "0.0.0.0") as server:
            self.assertEqual(server.request("/health")[0], 200)
            for key in (None, "", "key-", "key-11", "k" * 5000, "red"):
                for path in ("/v1/models", "/metrics"):
                    self.assertEqual(server.request(path, key=key)[0], 401, key)
            reused = [server.good("/v1/completions", {**body, **more}, key=key)["usage"]
                      ["prompt_tokens_details"]["cached_tokens"]
                      for key, more in (("key-1", {}), ("key-3", {}), ("key-2", {}),
                                        ("key-2", {"cache_salt": "s"}), ("key-3", {}))]
            self.assertEqual([n > 0 for n in reused], [False, False, True, False, True])
            with server.connect() as s:  # refused before the body arrives
                s.sendall((POST % (9999, b"")))
                self.assertIn(b" 401 ", s.recv(1000))
            self.assertNotIn("key-", server.errors())
        self.check(gqac("serve", TINY, "--host", "0.0.0.0", "--port", 0), 2, "--api-key-file")
        for text, where, what in (
                ("", "keys\n", "no key"), ("a b c\n", "line 1", "more than two words"),
                ("x" * 300, "line 1", "too long"), ("x" * 1024, "line 1", "too long"),
                ("a\nk\0ey", "line 2", "NUL"), ("k\0e\0y\0\n\0", "line 1", "NUL"),
                ("red k\nred k\nblue k\n", "line 3", "another tenant")):
            file.write_text(text)
            self.check(gqac("serve", TINY, "--api-key-file", file, "--port", 0), 4, where, what)
        for path in (self.dir / "none", self.dir):
            self.check(gqac("serve", TINY, "--api-key-file", path, "--port", 0), 5)

    def test_context(self):
        """A context that the model does not have is refused at the start."""
        self.check(gqac("serve", TINY, "--context", 10**9, "--port", 0), 4, "--context 1000000000",
                   "positions")

    def test_kinds(self):
        """An unknown kind of cache is refused at the start, and not in each request."""
        for kind in ("off", "heap"):
            self.check(gqac("serve", TINY, "--kv", kind, "--port", 0), 2,
                       f"unknown cache kind '{kind}'")

    def test_salts(self):
        """Any number of salts of one key share its part of the cache, and do not affect that of
        others."""
        file = self.dir / "keys"
        file.write_text("one key-1\ntwo key-2\n")

        def cached(key, **more):
            reply = server.good("/v1/completions", {"prompt": words(3, 80), "max_tokens": 1, **more},
                                key=key)
            return reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        with Server("--api-key-file", file, "--cache-budget", 1) as server:
            self.assertEqual(cached("key-1"), 0)
            for salt in range(30):
                self.assertEqual(cached("key-2", cache_salt=f"salt {salt}"), 0)
            self.assertGreater(cached("key-2", cache_salt="salt 29"), 80)
            self.assertEqual(cached("key-2", cache_salt="salt 0"), 0)
            self.assertGreater(cached("key-1"), 80)
            text = server.request("/metrics", key="key-1")[1]
            size = float(re.search(r"^gqac_store_bytes (\S+)$", text, re.M)[1])
            self.assertLess(size, 1 << 20)

    def test_left(self):
        """A client that disconnects during its prompt ends the work for it within 100 ms."""
        body = json.dumps({"prompt": words(99, 500), "max_tokens": 1}).encode()
        with Server("--target", "ref", "--step-tokens", 8, "--parallel", 1) as server:
            for _ in range(2):
                with server.connect() as s:
                    s.sendall(POST % (len(body), body))
                    server.await_metric("gqac_requests_running", 1)
                self.assertLess(server.await_metric("gqac_requests_running", 0), 0.1 * SLOW)
                self.assertEqual(server.metric("gqac_requests_waiting"), 0)
            self.assertEqual(server.metric("gqac_new_tokens_total"), 0)

    def test_names(self):
        """Without keys, a page of another host name that resolves to this machine is refused."""
        with Server() as server:
            for host, status in (("evil.example", 403), ("localhost:1", 200), ("127.0.0.1", 200),
                                 ("[::1]:80", 200)):
                self.assertEqual(server.request("/v1/models", headers={"Host": host})[0], status)
            self.assertEqual(server.request("/tokenize", {"content": "x"},
                                            headers={"Content-Type": "text/plain"})[0], 415)
            with server.connect() as s:
                s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
                self.assertIn(b" 415 ", s.recv(1000))
            with server.connect() as s:
                s.sendall(b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b" 404 ", s.recv(1000))
            status, answer = server.request("/chat/completions", {})[:2]
            self.assertEqual(status, 404)
            self.assertIn("did you mean /v1/chat/completions?", json.dumps(answer))
            self.assertEqual(server.lines()[-1]["status"], 404)

    def test_busy(self):
        """Requests without a free place are told to try again; SIGTERM completes running ones and
        refuses new ones."""
        with Server("--parallel", 1, "--queue", 1, "--threads", 1) as server:
            body = {"prompt": "I", "max_tokens": 1200, "ignore_eos": True}
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                replies = list(pool.map(lambda _: server.request("/v1/completions", body), range(8)))
            statuses = [status for status, _ in replies]
            self.assertEqual(set(statuses), {200, 429}, statuses)
            self.assertEqual(server.request("/v1/completions", {**body, "n": 3})[0], 400)
            server.await_metric("gqac_requests_running", 0)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(server.good, "/v1/completions", body)
                server.await_metric("gqac_requests_running", 1)
                self.assertEqual(server.stop(), 0)
                self.assertEqual(running.result()["usage"]["completion_tokens"], 1200)

    def test_waiting_choices(self):
        """Choices occupy places while they wait for the prompt that they share."""
        body = {"prompt": words(98, 400), "max_tokens": 1, "n": 3}
        with Server("--target", "ref", "--step-tokens", 8, "--parallel", 1, "--queue", 3) as server:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                first = pool.submit(server.request, "/v1/completions", body)
                server.await_metric("gqac_requests_running", 1)
                status, reply = server.request("/v1/completions", {"prompt": "I", "max_tokens": 1})
                self.assertFalse(first.done())
                self.assertEqual((status, reply["error"]["code"]), (429, "busy"))
                self.assertEqual(first.result()[0], 200)
            self.assertEqual(server.request("/v1/completions", {**body, "prompt": "I"})[0], 200)

    def test_last_answer(self):
        """SIGTERM: a client that reads slowly receives the whole last answer."""
        body = json.dumps({"prompt": "I", "max_tokens": 1200, "ignore_eos": True, "n": 3,
                           "logprobs": 20}).encode()
        with Server("--threads", 1) as server, socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(60 * SLOW)
            s.connect(("127.0.0.1", server.port))
            s.sendall(POST % (len(body), body))
            server.await_metric("gqac_requests_running", 3)
            server.child.send_signal(signal.SIGTERM)
            while not any(x["status"] == 200 and x["path"] != "/metrics" for x in server.lines()):
                time.sleep(0.01)
            time.sleep(0.5)
            text = b""
            while part := s.recv(1 << 20):
                text += part
            head, _, reply = text.partition(b"\r\n\r\n")
            self.assertIn(b"Content-Length: %d\r\n" % len(reply), head + b"\r\n")
            self.assertEqual(json.loads(reply)["usage"]["completion_tokens"], 3600)
            self.assertEqual(server.child.wait(30 * SLOW), 0)

    @harness.unittest.skipUnless(FULL, "long tier: waits for limits")
    def test_limits(self):
        """Answers that take too long or too much memory, or that nobody reads, end; others
        continue."""
        many = {"prompt": "I", "max_tokens": 1200, "n": 32, "ignore_eos": True, "temperature": 1}
        with Server("--time-limit", 1, "--target", "ref") as server:
            status, reply = server.request("/v1/completions", many)
            self.assertEqual((status, reply["error"]["code"]), (503, "time_limit"))
            server.await_metric("gqac_requests_running", 0)
            status, text = server.request("/v1/completions", {**many, "stream": True})
            self.assertIn("event: error\n", text)
            server.good("/v1/completions", {"prompt": "I", "max_tokens": 2})
        with Server("--memory-budget", 2) as server:
            status, reply = server.request("/v1/completions", {"prompt": words(1, 500),
                                                               "max_tokens": 2})
            self.assertEqual((status, reply["error"]["code"]), (503, "CAPACITY"))
            server.good("/v1/completions", {"prompt": "I", "max_tokens": 2})
        body = json.dumps({**many, "stream": True, "logprobs": 20}).encode()
        with Server() as server, server.connect() as s:
            s.sendall(POST % (len(body), body))
            server.await_metric("gqac_requests_running", 32)
            server.await_metric("gqac_requests_running", 0, 30)
            self.assertEqual([x["status"] for x in server.lines() if "/v1/comp" in x["path"]], [499])

    def test_loading(self):
        """The port is opened before the model is loaded; a port in use and a missing model are
        errors."""
        with Server() as server:
            self.check(gqac("serve", TINY, "--port", server.port), 5, "--port 0")
        self.check(gqac("serve", self.dir / "none", "--port", 0), 5)
        self.check(gqac("serve", TINY, "--parallel", 9, "--step-tokens", 8), 2, "--step-tokens")

    def test_parts(self):
        """Without a tokenizer or a chat template, stderr names the endpoints that refuse requests."""
        chat = {"messages": [{"role": "user", "content": "I"}], "max_tokens": 1}
        bodies = {"/v1/chat/completions": chat, "/v1/responses": {"input": "I", "max_output_tokens": 1},
                  "/tokenize": {"content": "I"}, "/detokenize": {"tokens": [1]},
                  "/apply-template": chat, "/v1/completions": {"prompt": "I", "max_tokens": 1}}
        for missing, words in (("tokenizer.json", "no tokenizer"),
                               ("chat_template.jinja", "no chat template"), ("training.csv", None)):
            model = shutil.copytree(TINY, self.dir / missing.split(".")[0])
            (model / missing).unlink()
            with self.subTest(missing=missing), Server(model=model) as server:
                said = [line for line in server.errors().splitlines() if "are refused" in line]
                self.assertEqual([words in line for line in said], [True] if words else [])
                for path, body in bodies.items():
                    refused = any(path in line for line in said)
                    self.assertEqual(server.request(path, body)[0], 400 if refused else 200, path)
                server.good("/v1/completions", {"prompt": [1, 2], "max_tokens": 1})


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
