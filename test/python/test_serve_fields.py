#!/usr/bin/env python3
"""gqac serve: which fields of a request are read, refused by name, or ignored.

    python test/python/test_serve_fields.py
"""

import json
import re
import sys

import harness
import openai
from harness import Case, ROOT
from openai.types import completion_create_params as of_text
from openai.types.chat import completion_create_params as of_chat
from openai.types.responses import response_create_params as of_response
from serving import Server, absent

CHAT, TEXT, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Hello"}]
BASES = {CHAT: {"messages": HELLO, "max_tokens": 1}, TEXT: {"prompt": "x", "max_tokens": 1},
         RESPONSE: {"input": "x", "max_output_tokens": 1}}
NAMES = {"CHAT": [CHAT], "TEXT": [TEXT], "RESPONSE": [RESPONSE], "ALL": [CHAT, TEXT, RESPONSE]}
# Labels and hints, which no answer depends on.
IGNORED = {"metadata", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"}
# Values that change the answer of another server, and the endpoints that must refuse them.
REFUSED = [
    ([CHAT, RESPONSE], {"store": True}), ([CHAT], {"verbosity": "low"}), ([CHAT, RESPONSE], {"echo": True}),
    ([RESPONSE], {"truncation": "auto"}), ([RESPONSE], {"prompt": {"id": "x"}}),
    ([RESPONSE], {"top_logprobs": 2}), ([RESPONSE], {"reasoning": {"summary": "auto"}}),
    ([RESPONSE], {"context_management": [{"type": "compaction"}]}),
    ([RESPONSE], {"text": {"verbosity": "high"}}), ([RESPONSE], {"return_progress": True}),
    ([TEXT], {"prompt_embeds": "x"}), ([TEXT], {"tools": [{}]}),
    (NAMES["ALL"], {"bad_words": ["x"]}), (NAMES["ALL"], {"allowed_token_ids": [1]}),
    (NAMES["ALL"], {"include_stop_str_in_output": True}), (NAMES["ALL"], {"skip_special_tokens": False}),
    (NAMES["ALL"], {"truncate_prompt_tokens": 9}), ([CHAT, RESPONSE], {"chat_template": "x"}),
    (NAMES["ALL"], {"repeat_penalty": 1.1}), (NAMES["ALL"], {"n_predict": 5}),
    (NAMES["ALL"], {"xtc_probability": 0.5}), (NAMES["ALL"], {"dynatemp_range": 0.5}),
    (NAMES["ALL"], {"samplers": ["top_k"]}), (NAMES["ALL"], {"n_probs": 3}),
    (NAMES["ALL"], {"regex": "x"}), (NAMES["ALL"], {"ebnf": "x"}), (NAMES["ALL"], {"extra_key": "x"}),
    (NAMES["ALL"], {"guided_regex": "x"}), (NAMES["ALL"], {"stream_options": {"include_obfuscation": True}}),
]


def rows():
    """(name, values that ask for nothing, endpoints) of each row of the server's table."""
    table = (ROOT / "src" / "serve" / "unsupported.c").read_text().partition("list[] = {")[2]
    for name, off, ends in re.findall(r'\{"([\w.]+)",\s*(NULL|"(?:[^"\\]|\\.)*"),\s*([A-Z |]+),',
                                      table.partition("\n};")[0]):
        values = [] if off == "NULL" else json.loads("[" + json.loads(off) + "]")
        yield name, values, sum((NAMES[end.strip()] for end in ends.split("|")), [])


def nested(name, value):
    """The field, which may be within an object."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


class Fields(Case):
    """One server."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", 1)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def ask(self, path, fields):
        """(status, the named field) of a request with these fields."""
        status, reply = self.server.request(path, {**BASES[path], **fields})
        return status, (reply.get("error") or {}).get("param")

    def test_table(self):
        """Each row is a 400 that names the field; null and the values that ask for nothing are not."""
        count = 0
        for name, off, paths in rows():
            for path in paths:
                with self.subTest(name=name, path=path):
                    status, reply = self.server.request(
                        path, {**BASES[path], **nested(name, {"x": 1})})
                    error = reply["error"]
                    self.assertEqual((status, error["param"], error["code"]),
                                     (400, name, "unsupported_parameter"))
                    self.assertIn(f"'{name}'", error["message"])
                    for value in [None, *off]:
                        self.assertEqual(self.ask(path, nested(name, value)), (200, None), value)
                    count += 1
        self.assertGreater(count, 250)
        print(count, "fields of endpoints")

    def test_refused(self):
        """Values that would be another answer elsewhere; and numbers that are equal are the same value."""
        for paths, fields in REFUSED:
            name, value = next(iter(fields.items()))
            if isinstance(value, dict) and name not in ("prompt",):
                name += "." + next(iter(value))
            for path in paths:
                with self.subTest(name=name, path=path):
                    self.assertEqual(self.ask(path, fields), (400, name))
        for fields in ({"best_of": 1.0}, {"xtc_probability": 0.0}, {"length_penalty": 1}):
            self.assertEqual(self.ask(TEXT, fields), (200, None))

    def test_elsewhere(self):
        """A field is refused where it means something, and ignored where it has no meaning."""
        for path, fields in ((TEXT, {"store": True, "verbosity": "low", "truncation": "auto"}),
                             (TEXT, {"echo": True, "text": {"verbosity": "low"}}),
                             (CHAT, {"truncation": "auto", "prompt": "x", "unknown": {"store": True}})):
            self.assertEqual(self.ask(path, fields), (200, None), fields)

    def test_official(self):
        """Every parameter of the official client is read, refused by name, or known to be ignored."""
        for path, params in ((CHAT, of_chat.CompletionCreateParamsBase),
                             (TEXT, of_text.CompletionCreateParamsBase),
                             (RESPONSE, of_response.ResponseCreateParamsBase)):
            names = params.__annotations__
            self.assertGreater(len(names), 15)
            for name in names:
                with self.subTest(name=name, path=path):
                    self.assertEqual(self.ask(path, {name: [{"x": 1}]}),
                                     (200, None) if name in IGNORED else (400, name))

    def test_progress(self):
        """Chunks that say how much of the prompt is computed, until all of it is; a cached part is counted."""
        ids = [(k * 37) % 500 for k in range(600)]
        for cached in (0, 599):
            chunks = list(self.client.completions.create(
                model="x", prompt=ids, max_tokens=1, stream=True, extra_body={"return_progress": True}))
            found = [chunk.prompt_progress for chunk in chunks if "prompt_progress" in chunk.model_extra]
            done = [x["processed"] for x in found]
            self.assertEqual((done, done[-1]), (sorted(set(done)), 600))
            self.assertEqual({x["total"] for x in found}, {600})
            self.assertGreater(done[0], cached)
            self.assertEqual([c.choices for c in chunks if "prompt_progress" in c.model_extra],
                             [[]] * len(found))
        chunks = list(self.client.chat.completions.create(
            model="x", messages=HELLO, max_tokens=1, stream=True, extra_body={"return_progress": True}))
        self.assertEqual(sum("prompt_progress" in chunk.model_extra for chunk in chunks), 1)

    def test_cache_key(self):
        """A prompt_cache_key is a text that changes nothing: the prefix of another key is used."""
        body = {"prompt": [9] * 50, "max_tokens": 2}
        replies = [self.server.good(TEXT, {**body, "prompt_cache_key": key}) for key in "ab"]
        self.assertEqual(replies[0]["choices"], replies[1]["choices"])
        self.assertEqual([r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies], [0, 49])
        for path in NAMES["ALL"]:
            self.assertEqual(self.ask(path, {"prompt_cache_key": 1}), (400, "prompt_cache_key"))

    def test_client(self):
        """What the client of OpenAI's API says of a refused field, and of a number that is too big."""
        chat, respond = self.client.chat.completions.create, self.client.responses.create
        for call, name, fields in (
                (chat, "store", {"messages": HELLO, "store": True}),
                (chat, "n_predict", {"messages": HELLO, "extra_body": {"n_predict": 9}}),
                (chat, "seed", {"messages": HELLO, "seed": 2**63}),
                (chat, "seed", {"messages": HELLO, "seed": -2**63 - 1}),
                (respond, "truncation", {"input": "x", "truncation": "auto"}),
                (respond, "reasoning.summary", {"input": "x", "reasoning": {"summary": "auto"}})):
            with self.assertRaises(openai.BadRequestError) as caught:
                call(model="x", **fields)
            self.assertEqual(caught.exception.param, name)
            self.assertIn(f"'{name}'", caught.exception.message)
        self.assertIn("'max_tokens'", self.server.request(
            CHAT, {**BASES[CHAT], "n_predict": 9})[1]["error"]["message"])
        reply = chat(model="x", messages=HELLO, seed=2**63 - 1, max_tokens=1, store=False)
        self.assertEqual(reply.usage.completion_tokens, 1)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
