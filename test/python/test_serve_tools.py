#!/usr/bin/env python3
"""gqac serve: calls of tools in answers, whole and as streams, for the syntaxes of templates.

    python test/python/test_serve_tools.py
"""

import json
import shutil
import sys

import harness
import openai
from harness import ROOT, Case
from serving import TINY, Server, absent

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
ARGUMENTS = '{"place": "K\\u00f6ln </tool_call>", "days": [1, 2.50]}'
# template: content, text of the answer, its calls (name, arguments, id)
ANSWERS = {
    "qwen": ("Let me see.", 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": %s}\n'
             '</tool_call>\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>' % ARGUMENTS,
             [("weather", ARGUMENTS, None), ("clock", "{}", None)]),
    "mistral": (None, '[TOOL_CALLS] [{"name": "weather", "arguments": %s, "id": "abcdefghi"}, '
                '{"name": "clock", "arguments": {}}]' % ARGUMENTS,
                [("weather", ARGUMENTS, "abcdefghi"), ("clock", "{}", None)]),
    "llama3": (None, '{"name": "weather", "parameters": %s}' % ARGUMENTS,
               [("weather", ARGUMENTS, None)]),
    "harmony": (None, ' to=functions.weather<|channel|>commentary json<|message|>%s<|call|>' % ARGUMENTS,
                [("weather", ARGUMENTS, None)]),
}


class Tools(Case):
    """A grammar makes the model say what is to be read."""

    def ask(self, client, said, stream=False, **fields):
        """A chat whose answer has the text `said`."""
        return client.chat.completions.create(
            **{"model": "x", "messages": [{"role": "user", "content": "Go"}], "tools": TOOLS,
               "max_tokens": 300, "stream": stream, **fields},
            extra_body={"grammar": "root ::= " + json.dumps(said, ensure_ascii=False)})

    def streamed(self, client, said, **fields):
        """(content, calls, finish reason) of a stream."""
        content, calls, finish = "", {}, None
        for chunk in self.ask(client, said, stream=True, **fields):
            (choice,) = chunk.choices
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                self.assertNotIn(call.index, calls)  # each comes whole
                self.assertEqual(call.type, "function")
                calls[call.index] = (call.function.name, call.function.arguments, call.id)
            finish = choice.finish_reason or finish
        self.assertEqual(list(calls), list(range(len(calls))))
        return content, list(calls.values()), finish

    def same(self, found, wanted):
        """Equal calls; an id that the answer does not have is made, of nine letters or digits."""
        self.assertEqual([call[:2] for call in found], [call[:2] for call in wanted])
        for (_, _, own), (_, _, given) in zip(found, wanted):
            self.assertRegex(own, "^[0-9a-z]{9}$")
            self.assertIn(given, (None, own))
        self.assertEqual(len({call[2] for call in found}), len(found))

    def check_family(self, family):
        """Calls whole and streamed; the message is accepted as part of the next turn; no calls without tools."""
        content, said, wanted = ANSWERS[family]
        template = (ROOT / "test" / "templates" / family / "template.jinja").read_text()
        folder = shutil.copytree(TINY, self.dir / family)
        (folder / "chat_template.jinja").write_text(template)
        with Server(model=folder) as server, openai.OpenAI(
                base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            (choice,) = self.ask(client, said).choices
            self.assertEqual((choice.message.content, choice.finish_reason), (content, "tool_calls"))
            self.same([(c.function.name, c.function.arguments, c.id)
                       for c in choice.message.tool_calls], wanted)
            text, calls, finish = self.streamed(client, said)
            self.assertEqual((text, finish), (content or "", "tool_calls"))
            self.same(calls, wanted)
            turn = server.good("/apply-template", {
                "tools": TOOLS, "messages": [{"role": "user", "content": "Go"},
                                             choice.message.to_dict()]})["prompt"]
            self.assertIn(wanted[0][0], turn)
            for fields in ({"tool_choice": "none"}, {"tools": openai.NOT_GIVEN}):
                (choice,) = self.ask(client, said, **fields).choices
                self.assertEqual((choice.message.content, choice.message.tool_calls,
                                  choice.finish_reason), (said, None, "stop"))
            damaged = said.replace("weather", "unknown").replace("clock", "unknown")
            for stream in (False, True):
                if stream:
                    text, calls, finish = self.streamed(client, damaged)
                else:
                    (choice,) = self.ask(client, damaged).choices
                    text, calls, finish = (choice.message.content, choice.message.tool_calls or [],
                                           choice.finish_reason)
                self.assertEqual((calls, finish), ([], "stop"))
                self.assertIn("unknown", text)
            (choice,) = self.ask(client, said, max_tokens=40).choices
            self.assertEqual((choice.message.tool_calls, choice.finish_reason), (None, "length"))

    def test_qwen(self):
        """Objects in tags, with content before them; a call that is cut off stays text."""
        self.check_family("qwen")

    def test_others(self):
        """A list after a marker, a bare object, messages in channels."""
        for family in ("mistral", "llama3", "harmony"):
            with self.subTest(family=family):
                self.check_family(family)

    def test_forced(self):
        """A call cannot be forced: refused by name; tools that are no list, too."""
        with Server() as server:
            for choice in ("required", {"type": "function", "function": {"name": "clock"}}):
                status, reply = server.request("/v1/chat/completions", {
                    "messages": [{"role": "user", "content": "x"}], "tools": TOOLS,
                    "tool_choice": choice})
                self.assertEqual((status, reply["error"]["param"]), (400, "tool_choice"))


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
