#!/usr/bin/env python3
"""gqac serve: reasoning tokens in `usage`, for the markers of templates.

    python test/python/test_serve_reasoning.py
"""

import json
import shutil
import sys

import harness
import openai
from harness import Case
from serving import TINY, Server, absent
from textmodel import with_template

# the markers that are tokens, the text that begins reasoning, and the text that ends it
MARKERS = [(["<think>", "</think>"], "<think>", "</think>"),
           (["[THINK]", "[/THINK]"], "[THINK]", "[/THINK]"),
           (["<|START_THINKING|>", "<|END_THINKING|>"], "<|START_THINKING|>", "<|END_THINKING|>"),
           (["<|channel|>", "<|message|>", "<|end|>"], "<|channel|>analysis<|message|>", "<|end|>")]
HELLO = [{"role": "user", "content": "Hello"}]


def biases(ids):
    """Biases with which a model writes these ids and no others of the same text; earlier ones are
    larger."""
    return {str(ids[at]): max(20, 200 - 15 * at) for at in reversed(range(len(ids)))}


class Reasoning(Case):
    """A grammar makes the model reason."""

    def served(self, markers):
        """A server whose tokenizer has the markers, as tokens that may be text."""
        folder = with_template(self.dir / markers[0].strip("<|[]>"), "qwen", markers)
        own = json.loads((folder / "tokenizer.json").read_text())
        for token in own["added_tokens"][-len(markers):]:
            token["special"] = False
        (folder / "tokenizer.json").write_text(json.dumps(own))
        return self.enterContext(Server("--threads", 1, model=folder))

    def ask(self, server, said, prompt="x", most=90, **fields):
        """(ids, reasoning tokens) of a completion with this text, in the tokens of the
        tokenizer."""
        ids = server.good("/tokenize", {"content": said, "add_special": False})["tokens"]
        reply = server.good("/v1/completions", {
            "prompt": prompt, "max_tokens": most, "return_token_ids": True, "temperature": 0,
            "grammar": "root ::= " + json.dumps(said), "logit_bias": biases(ids), **fields})
        self.assertTrue(said.startswith(reply["choices"][0]["text"]))
        return (reply["choices"][0]["token_ids"],
                reply["usage"]["completion_tokens_details"]["reasoning_tokens"])

    def check_markers(self, markers, begin, end):
        """Tokens between the markers are counted, and no others."""
        server = self.served(markers)
        *_, first = server.good("/tokenize", {"content": begin, "add_special": False})["tokens"]
        (last,) = server.good("/tokenize", {"content": end, "add_special": False})["tokens"]
        said = f"{begin}\nShe was{end} Yes."
        ids, count = self.ask(server, said)
        self.assertEqual(count, ids.index(last) - ids.index(first) - 1)
        self.assertGreater(count, 1)
        self.assertLess(count, len(ids) - 3)
        ids, count = self.ask(server, said + said)  # twice
        self.assertEqual(count, sum(ids.index(last, at) - at - 1
                                    for at, i in enumerate(ids) if i == first))
        at = ids.index(first)
        self.assertEqual(self.ask(server, said, most=at + 3)[1], 2)  # truncated
        self.assertEqual(self.ask(server, "She was")[1], 0)
        for prompt in (f"Hello {begin}", f"Hello {begin}\n \n"):  # begun in the prompt
            ids, count = self.ask(server, f"She was{end} Yes.", prompt)
            self.assertEqual(count, ids.index(last))
        for prompt in (f"{begin}\n\n{end}\n\n", f"{begin} is a marker"):
            self.assertEqual(self.ask(server, "She was", prompt)[1], 0)
        return server, said, ids

    def test_markers(self):
        """Each pair of markers."""
        for markers, begin, end in MARKERS[1:]:
            with self.subTest(begin=begin):
                self.check_markers(markers, begin, end)

    def test_endpoints(self):
        """The official client gets the same count for chats and responses, whole and streamed."""
        server, said, _ = self.check_markers(*MARKERS[0])
        ids, want = self.ask(server, said)
        fields = {"grammar": "root ::= " + json.dumps(said), "temperature": 0,
                  "logit_bias": biases(ids)}
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            chat = {"model": "x", "messages": HELLO, "max_tokens": 90, "extra_body": fields}
            reply = client.chat.completions.create(**chat)
            self.assertEqual(reply.choices[0].message.content, said)
            self.assertEqual(reply.usage.completion_tokens_details.reasoning_tokens, want)
            *_, chunk = client.chat.completions.create(
                **chat, stream=True, stream_options={"include_usage": True})
            self.assertEqual(chunk.usage.completion_tokens_details.reasoning_tokens, want)
            asked = {"model": "x", "input": "Hello", "max_output_tokens": 90, "extra_body": fields}
            reply = client.responses.create(**asked)
            self.assertEqual(reply.usage.output_tokens_details.reasoning_tokens, want)
            *_, event = client.responses.create(**asked, stream=True)
            self.assertEqual(event.response.usage.output_tokens_details.reasoning_tokens, want)
            reply = client.chat.completions.create(**{**chat, "n": 3})
            self.assertEqual(reply.usage.completion_tokens_details.reasoning_tokens, 3 * want)

    def test_none(self):
        """With a tokenizer in which the markers are several tokens, none are counted."""
        with Server("--threads", 1) as server:
            self.assertEqual(self.ask(server, "<think>\nShe was</think> Yes.")[1], 0)

    def test_unknown(self):
        """The id of the unknown token is not a marker."""
        folder = shutil.copytree(TINY, self.dir / "unknown")
        own = json.loads((folder / "tokenizer.json").read_text())
        own.update(added_tokens=[], pre_tokenizer=None, post_processor=None, decoder=None, model={
            "type": "BPE", "vocab": {"[?]": 0, "a": 1}, "merges": [], "unk_token": "[?]", "fuse_unk": True})
        (folder / "tokenizer.json").write_text(json.dumps(own))
        server = self.enterContext(Server("--threads", 1, model=folder))
        self.assertEqual(server.good("/tokenize", {"content": "</think>"})["tokens"], [0])
        reply = server.good("/v1/completions", {"prompt": [1, 0], "max_tokens": 5, "ignore_eos": True})
        self.assertEqual(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
