#!/usr/bin/env python3
"""gqac chat --tools: calls as lines of JSON, their results as lines, and the ids of the server.

    python test/python/test_chat_tools.py
"""

import json
import sys

import harness
import jsonschema
from harness import Case, gqac
from serving import TINY, Server, absent
from textmodel import with_template

PLACE = {"type": "object", "required": ["place"], "additionalProperties": False,
         "properties": {"place": {"enum": ["K\u00f6ln", "Rome", "</tool_call>"]}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PLACE}},
         {"type": "function", "function": {"name": "clock"}}]
ODD_TOOLS = (("1", "is not an object"), ('{"type": "web_search"}', '"type"'),
             ('{"type": "function"}', '"name"'), ('{"function": []}', '"function"'),
             ('{"function": {"name": ""}}', '"name"'), ('{"name": "g", "parameters": []}', '"parameters"'),
             ('{"function": {"name": "g", "description": 1}}', '"description" that is not a string'))


class Calls(Case):
    """A model whose template writes calls in tags."""

    def setUp(self):
        super().setUp()
        self.model = with_template(self.dir / "m", "qwen")
        self.tools = self.dir / "tools.json"
        self.tools.write_text(json.dumps(TOOLS))

    def chat(self, typed, *args):
        """The output for these lines."""
        path = self.dir / "typed"
        path.write_text(typed)
        with open(path, "rb") as stdin:
            return self.good("chat", self.model, "-q", "--tools", self.tools, *args, stdin=stdin).out

    def turns(self, typed, *args):
        """The JSON objects of all turns."""
        return [json.loads(line) for line in self.chat(typed, "--format", "json", *args).splitlines()]

    def test_lines(self):
        """A forced call is a line of JSON; the next line is its result, and the answer to that is text."""
        out = self.chat("Go\n7\n", "--tool-choice", "required", "--one-call", "-n", 90)
        first, rest = out.split("\n", 1)
        call = json.loads(first)
        self.assertEqual(list(call), ["id", "name", "arguments"])
        self.assertIn(call["name"], ("weather", "clock"))
        if call["name"] == "weather":
            jsonschema.validate(call["arguments"], PLACE)
        self.assertTrue(rest.endswith("\n") and rest.strip())
        self.assertNotIn("tool_call", out)
        named = json.loads(self.chat("Go\n", "--tool-choice", "clock", "--one-call", "-n", 60))
        self.assertEqual((named["name"], named["arguments"]), ("clock", {}))

    def test_results(self):
        """Several calls: the model continues when each has a result; /reset forgets them."""
        flags = ("--tool-choice", "clock", "-n", 150)
        (turn,) = self.turns("Go\n", *flags)
        n = len(turn["tool_calls"])
        self.assertGreater(n, 1)
        self.assertEqual([call["id"] for call in turn["tool_calls"]],
                         [f"call{i + 1:05d}" for i in range(n)])
        for call in turn["tool_calls"]:
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])),
                             ("clock", {}))
        self.assertEqual(len(self.turns("Go\n" + "7\n" * (n - 1), *flags)), 1)
        found = self.turns("Go\n" + "7\n" * n, *flags)
        self.assertEqual([len(t["tool_calls"]) for t in found], [n, 0])
        again = self.turns("Go\n/reset\nGo\n", *flags)
        self.assertEqual(again[1]["ids"], turn["ids"])

    def test_marker(self):
        """A marker that is a special token, which is not part of the text, is recognised as
        well."""
        self.model = with_template(self.dir / "s", "mistral", ["[TOOL_CALLS]"])
        (turn,) = self.turns("Go\n", "--tool-choice", "clock", "--one-call", "-n", 60)
        self.assertEqual(([call["function"]["name"] for call in turn["tool_calls"]], turn["ids"][0]),
                         (["clock"], 511))

    def test_unforced(self):
        """Negative control: without forcing, the answers are text, as without tools."""
        for args in ((), ("--tool-choice", "auto")):
            (turn,) = self.turns("Go\n", "-n", 20, *args)
            self.assertEqual(turn["tool_calls"], [])
        (none,) = self.turns("Go\n", "-n", 9, "--tool-choice", "none")
        self.assertNotIn("tool_calls", none)
        self.assertNotEqual(none["ids"], turn["ids"][:9])  # the template did not get them

    def test_server(self):
        """A forced call, and the answer to its result, have the same ids as from the server."""
        if absent():
            self.skipTest("this gqac was built without the server")
        found = self.turns("Go\n7\n", "--tool-choice", "required", "--one-call", "-n", 90,
                           "--seed", 2)
        messages, choice = [{"role": "user", "content": "Go"}], "required"
        with Server(model=self.model) as server:
            for turn in found:
                reply = server.good("/v1/chat/completions", {
                    "messages": messages, "tools": TOOLS, "tool_choice": choice, "seed": 2,
                    "parallel_tool_calls": False, "max_tokens": 90, "return_token_ids": True})
                said = reply["choices"][0]
                self.assertEqual(said["token_ids"], turn["ids"])
                messages += [said["message"], {"role": "tool", "name": turn["tool_calls"][0][
                    "function"]["name"] if turn["tool_calls"] else "", "content": "7"}]
                choice = "auto"

    def test_refused(self):
        """Invalid flags are exit 2, invalid lists 4, keywords and templates 3, missing files 5."""
        odd = json.dumps([{"name": "f", "parameters": {"properties": {"a": {"multipleOf": 2}}}}])
        need = ("--tool-choice", "required")
        for code, words, args in (
                (2, ["--tool-choice needs --tools"], need), (2, ["--one-call needs"], ("--one-call",)),
                (2, ["cannot be combined"], ("--tools", self.tools, "--grammar", 'root ::= "a"')),
                (2, ["standard input"], ("--tools", "-")), (5, ["nothing"], ("--tools", "nothing")),
                (5, ["does not begin with ["], ("--tools", '{"name": "f"}')),
                (4, ["not a JSON list"], ("--tools", "[]")), 
                (4, ["not a JSON list", "line 1, column"], ("--tools", "[1")),
                *((4, ["item 1 of the tools", part], ("--tools", f'[{{"name": "f"}}, {tool}]'))
                  for tool, part in ODD_TOOLS),
                (4, ["'x'"], ("--tools", self.tools, "--tool-choice", "x")),
                (3, ["multipleOf", "'f'", "#/properties/a"], ("--tools", odd, *need))):
            with self.subTest(args=args):
                self.check(gqac("chat", self.model, *args, "-q"), code, *words)
        self.check(gqac("chat", TINY, "--tools", self.tools, *need, "-q"), 3, "no syntax")


if __name__ == "__main__":
    sys.exit(harness.main())
