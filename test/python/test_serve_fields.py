#!/usr/bin/env python3
"""gqac serve: the fields of a request that are read, refused by name, or ignored.

    python test/python/test_serve_fields.py
"""

import json
import re
import shutil
import sys

import harness
import openai
from harness import Case, ROOT
from openai.types import completion_create_params as of_text
from openai.types.chat import completion_create_params as of_chat
from openai.types.responses import response_create_params as of_response
from serving import TINY, Server, absent, events

CHAT, TEXT, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Hello"}]
BASES = {CHAT: {"messages": HELLO, "max_tokens": 1}, TEXT: {"prompt": "x", "max_tokens": 1},
         RESPONSE: {"input": "x", "max_output_tokens": 1}}
NAMES = {"CHAT": [CHAT], "TEXT": [TEXT], "RESPONSE": [RESPONSE], "ALL": [CHAT, TEXT, RESPONSE]}
# Labels and hints that do not affect answers.
IGNORED = {"metadata", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"}
# Values that would change the answer of another server, and the endpoints that must refuse them.
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
    """(name, values without effect, endpoints) for each row of the server's table, except those for
    models with an encoder."""
    table = (ROOT / "src" / "serve" / "unsupported.c").read_text().partition("list[] = {")[2]
    for name, off, ends in re.findall(r'\{"([\w.]+)",\s*(NULL|"(?:[^"\\]|\\.)*"),\s*([A-Z |]+),',
                                      table.partition("\n};")[0]):
        values = [] if off == "NULL" else json.loads("[" + json.loads(off) + "]")
        if ends != "ENCODER":
            yield name, values, sum((NAMES[end.strip()] for end in ends.split("|")), [])


def nested(name, value):
    """The field, which may be in an object."""
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
        """Each row is a 400 that names the field; null and the values without effect are not."""
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
        """Values that would cause another answer elsewhere; equal numbers are the same value."""
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
        """A field is refused where it has a meaning, and ignored elsewhere."""
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
        """Chunks that report how much of the prompt is computed, until all of it is; a cached part
        counts."""
        ids = [(k * 37) % 500 for k in range(600)]
        for cached in (0, 599):
            chunks = list(self.client.completions.create(
                model="x", prompt=ids, max_tokens=1, stream=True,
                extra_body={"return_progress": True, "cache_salt": "progress"}))
            found = [chunk.prompt_progress for chunk in chunks if "prompt_progress" in chunk.model_extra]
            done = [x["processed"] for x in found]
            self.assertEqual((done, done[-1]), (sorted(set(done)), 600))
            self.assertEqual({x["total"] for x in found}, {600})
            self.assertGreater(done[0], cached)
            self.assertEqual({x["cache"] for x in found}, {cached})
            self.assertEqual([c.choices for c in chunks if "prompt_progress" in c.model_extra],
                             [[]] * len(found))
        chunks = list(self.client.chat.completions.create(
            model="x", messages=HELLO, max_tokens=1, stream=True, extra_body={"return_progress": True}))
        self.assertEqual(sum("prompt_progress" in chunk.model_extra for chunk in chunks), 1)

    def test_progress_of_several(self):
        """The sums over all prompts, also if answers share one, and if they end one after
        another."""
        one = self.enterContext(Server("--threads", 1, "--parallel", 1))
        prompts = [[(k * 41 + first) % 500 for k in range(n)] for first, n in ((1, 330), (2, 168))]
        for client in (self.client, self.enterContext(openai.OpenAI(
                base_url=one.url + "/v1", api_key="none", max_retries=0))):
            for prompt, n in ((prompts, 1), (prompts, 1), (prompts[::-1], 2), (prompts[1], 3)):
                chunks = list(client.completions.create(
                    model="x", prompt=prompt, max_tokens=20, n=n, stream=True,
                    stream_options={"include_usage": True},
                    extra_body={"return_progress": True, "cache_salt": "several"}))
                found = [chunk.prompt_progress for chunk in chunks if "prompt_progress" in chunk.model_extra]
                usage = chunks[-1].usage
                self.assertEqual(found[-1], {"total": usage.prompt_tokens, "processed": usage.prompt_tokens,
                                             "cache": usage.prompt_tokens_details.cached_tokens})
                self.assertEqual([x["processed"] for x in found], sorted({x["processed"] for x in found}))
                self.assertTrue(all(x["cache"] <= x["processed"] for x in found), found)

    def test_cache_key(self):
        """A prompt_cache_key has no effect: the prefix of a request with another key is reused."""
        body = {"prompt": [9] * 50, "max_tokens": 2}
        replies = [self.server.good(TEXT, {**body, "prompt_cache_key": key}) for key in "ab"]
        self.assertEqual(replies[0]["choices"], replies[1]["choices"])
        self.assertEqual([r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies], [0, 49])
        for path in NAMES["ALL"]:
            self.assertEqual(self.ask(path, {"prompt_cache_key": 1}), (400, "prompt_cache_key"))

    def test_client(self):
        """How the client of OpenAI's API reports a refused field, and a number that is too big."""
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


class OfPeers(Case):
    """Fields of vLLM, SGLang and llama.cpp that this server supports."""

    def setUp(self):
        super().setUp()
        self.server = self.enterContext(Server("--threads", 1))

    def choose(self, path=TEXT, **fields):
        """The only choice of a reply, with its ids."""
        (choice,) = self.server.good(path, {**BASES[path], "max_tokens": 16, "return_token_ids": True,
                                            **fields})["choices"]
        return choice

    def refused(self, path, name, **fields):
        """The request is a 400 that names this field."""
        status, reply = self.server.request(path, {**BASES[path], **fields})
        self.assertEqual((status, reply["error"]["param"]), (400, name))

    def test_stop_token_ids(self):
        """An answer ends with the first of these ids, which is not part of its text, whole and
        streamed."""
        fields = {"prompt": "She had been", "seed": 1, "ignore_eos": True}
        free = self.choose(**fields)["token_ids"]
        for stop in ([free[9]], [free[12], free[5]], [free[3]] * 9):
            at = min(free.index(i) for i in stop)
            self.assertLess(at, 15)
            got = self.choose(**fields, stop_token_ids=stop)
            self.assertEqual((got["token_ids"], got["finish_reason"]), (free[:at + 1], "stop"))
            self.assertEqual(got["text"], self.server.good("/detokenize", {"tokens": free[:at]})["content"])
            text = self.server.request(TEXT, {**fields, "max_tokens": 16, "stream": True,
                                              "stop_token_ids": stop})[1]
            self.assertEqual("".join(e["choices"][0]["text"] for e in events(text)), got["text"])
        chat = self.choose(CHAT, seed=1, ignore_eos=True)["token_ids"]
        self.assertEqual(self.choose(CHAT, seed=1, stop_token_ids=[chat[4]])["token_ids"],
                         chat[:chat.index(chat[4]) + 1])
        yes = self.choose(json_schema={"const": "yes"}, stop_token_ids=free[9:10])["text"]
        self.assertEqual(json.loads(yes), "yes")  # ids that end an answer do so where it is complete
        for wrong in (1, "x", {}, [-1], [512], [1.5], ["x"], [1] * 1001):
            self.refused(TEXT, "stop_token_ids", stop_token_ids=wrong)

    def test_end_of_text(self):
        """The model's own ids end an answer as well; with ignore_eos only these ids do."""
        folder = shutil.copytree(TINY, self.dir / "model")
        free = self.choose(prompt="She had been", ignore_eos=True)["token_ids"]
        config = json.loads((folder / "genai_config.json").read_text())
        config["model"]["eos_token_id"] = [free[9]]
        (folder / "genai_config.json").write_text(json.dumps(config))
        self.server = self.enterContext(Server("--threads", 1, model=folder))
        for fields, end in (({}, free[9]), ({"stop_token_ids": [free[6]]}, free[6]),
                            ({"stop_token_ids": [free[12]]}, free[9]),
                            ({"stop_token_ids": [free[12]], "ignore_eos": True}, free[12])):
            ids = self.choose(prompt="She had been", **fields)["token_ids"]
            self.assertEqual(ids, free[:free.index(end) + 1])

    def test_cache_prompt(self):
        """With cache_prompt false nothing is read from the cache, and nothing is added to it."""
        def cached(*ids, **fields):
            return self.server.good(TEXT, {"prompt": ids, "max_tokens": 2, **fields})[
                "usage"]["prompt_tokens_details"]["cached_tokens"]
        for n in (1, 3):
            warm, cold = [9 + n] * 50, [19 + n] * 50
            cached(*warm, n=n)
            self.assertGreater(cached(*warm, n=n), 40)
            for _ in range(2):
                self.assertEqual(cached(*cold, n=n, cache_prompt=False), 0)
                self.assertEqual(cached(*warm, n=n, cache_prompt=False), 0)
            self.assertGreater(cached(*warm, n=n, cache_prompt=True), 40)
            self.assertLess(cached(*cold, n=n), 9)
        same = [self.choose(seed=3, logprobs=2, cache_prompt=cache) for cache in (True, False)]
        self.assertEqual(same[0], same[1])
        self.refused(TEXT, "cache_prompt", cache_prompt=1)

    def test_add_special_tokens(self):
        """Whether the tokenizer adds its own tokens to a text: by default for prompts, not for
        chats."""
        plain = self.server.good("/tokenize", {"content": "It was", "add_special": False})["tokens"]
        ids = {fields: self.choose(prompt="It was", **dict(fields))["prompt_token_ids"]
               for fields in ((), (("add_special_tokens", True),), (("add_special_tokens", False),))}
        self.assertEqual(list(ids.values()), [[0, *plain], [0, *plain], plain])
        chat = self.choose(CHAT)["prompt_token_ids"]
        self.assertEqual(self.choose(CHAT, add_special_tokens=False)["prompt_token_ids"], chat)
        self.assertEqual(self.choose(CHAT, add_special_tokens=True)["prompt_token_ids"], [0, *chat])
        self.refused(CHAT, "add_special_tokens", add_special_tokens=1)

    def template(self, text):
        """Serves the model with another chat template."""
        folder = shutil.copytree(TINY, self.dir / str(len(list(self.dir.iterdir()))))
        (folder / "chat_template.jinja").write_text(text)
        self.server = self.enterContext(Server("--threads", 1, model=folder))

    def test_documents(self):
        """The template gets the documents; without the field it gets none."""
        self.template("{% if documents is none %}none{% endif %}{% for d in documents or [] %}"
                      "<{{ d.title }}: {{ d.text }}>{% endfor %}{{ messages[0].content }}")
        found = [{"title": "a", "text": "b"}, {"title": "c", "text": "d"}]
        for fields, want in (({}, "noneHello"), ({"documents": []}, "Hello"),
                             ({"documents": found}, "<a: b><c: d>Hello")):
            body = {"messages": HELLO, **fields}
            self.assertEqual(self.server.good("/apply-template", body)["prompt"], want)
            ids = self.choose(CHAT, **fields)["prompt_token_ids"]
            self.assertEqual(self.server.good("/detokenize", {"tokens": ids})["content"], want)
        self.refused(CHAT, "documents", documents={})

    def test_continue_final_message(self):
        """The prompt ends at the end of the last message's content, and the answer continues from
        there."""
        for template, said, want in (
                ("{% for m in messages %}[{{ m.role }}] {{ m.content }}<end>\n{% endfor %}", "He was ",
                 "[user] Hello<end>\n[assistant] He was "),
                ("{% for m in messages %}{{ m.content | trim }}\n{% endfor %}", " He was \n", "Hello\nHe was"),
                ("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}",
                 "[to be continued] x", "Hello[to be continued] x")):
            self.template(template)
            body = {"messages": [*HELLO, {"role": "assistant", "content": said}],
                    "continue_final_message": True}
            self.assertEqual(self.server.good("/apply-template", body)["prompt"], want)
            self.assertEqual(
                self.choose(CHAT, **body, add_generation_prompt=False, seed=1)["token_ids"],
                self.choose(TEXT, prompt=want, add_special_tokens=False, seed=1)["token_ids"])
            self.assertNotEqual(self.server.good("/apply-template", {
                **body, "continue_final_message": False})["prompt"], want)
        name = "continue_final_message"
        self.refused(CHAT, name, **body, add_generation_prompt=True)
        self.refused(CHAT, name, continue_final_message=1)
        self.refused(CHAT, name, continue_final_message=True, messages=[
            *HELLO, {"role": "assistant", "content": None, "tool_calls": []}])
        self.template("{{ messages[0].content }}")
        self.refused(CHAT, name, **body)
        self.template("{{ messages[1].content | upper }}")
        self.refused(CHAT, name, **body)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
