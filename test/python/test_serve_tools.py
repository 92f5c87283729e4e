#!/usr/bin/env python3
"""gqac serve: tool calls in answers, whole and streamed, for the syntaxes of templates.

    python test/python/test_serve_tools.py
"""

import json
import sys

import harness
import jsonschema
import openai
from harness import Case
from serving import Server, absent
from textmodel import with_template

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}, "strict": False}}
         for name in ("weather", "clock")]
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
ARGUMENTS = '{"place": "K\\u00f6ln </tool_call>", "days": [1, 2.50]}'
STRICT = [
    {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {
        "type": "object", "required": ["place", "days"], "properties": {
            "place": {"enum": ["K\u00f6ln", "</tool_call>"]},
            "days": {"type": "array", "maxItems": 2, "items": {"type": "integer", "maximum": 9}}}}}},
    {"type": "function", "function": {"name": "clock", "parameters": {
        "properties": {"zone": {"type": "string", "maxLength": 4}}, "required": ["zone"]}}}]
LOOSE = [dict(tool, function={**tool["function"], "strict": False}) for tool in STRICT]
NAMED = {"type": "function", "function": {"name": "clock"}}
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
    """With a grammar the model writes the expected texts."""

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
                self.assertNotIn(call.index, calls)  # each arrives complete
                self.assertEqual(call.type, "function")
                calls[call.index] = (call.function.name, call.function.arguments, call.id)
            finish = choice.finish_reason or finish
        self.assertEqual(list(calls), list(range(len(calls))))
        return content, list(calls.values()), finish

    def same(self, found, wanted):
        """Equal calls; if the answer has no id, one of nine letters or digits is generated."""
        self.assertEqual([call[:2] for call in found], [call[:2] for call in wanted])
        for (_, _, own), (_, _, given) in zip(found, wanted):
            self.assertRegex(own, "^[0-9a-z]{9}$")
            self.assertIn(given, (None, own))
        self.assertEqual(len({call[2] for call in found}), len(found))

    def check_family(self, family):
        """Calls whole and streamed; the message is accepted in the next turn; without tools there
        are no calls."""
        content, said, wanted = ANSWERS[family]
        with Server(model=with_template(self.dir / family, family)) as server, openai.OpenAI(
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
            self.check_responses(client, family)

    def respond(self, client, said, stream, **fields):
        """A response whose answer has the text `said`; if it is streamed, its events are
        checked."""
        asked = {"model": "x", "input": "Go", "tools": FLAT, "max_output_tokens": 300, **fields,
                 "extra_body": {"grammar": "root ::= " + json.dumps(said, ensure_ascii=False)}}
        if not stream:
            return client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        final, items, added, arguments = events[-1].response, {}, {}, {}
        for event in events:
            if event.type == "response.output_item.added":
                added[event.output_index] = event.item
                self.assertEqual(event.item.status, "in_progress")
            elif event.type == "response.output_item.done":
                items[event.output_index] = event.item
                self.assertEqual(event.item.id, added[event.output_index].id)
            elif event.type == "response.function_call_arguments.delta":
                arguments[event.item_id] = arguments.get(event.item_id, "") + event.delta
            elif event.type == "response.function_call_arguments.done":
                self.assertEqual(event.arguments, arguments[event.item_id])
        self.assertEqual([items[i] for i in range(len(items))], final.output)
        self.assertEqual(arguments, {item.id: item.arguments for item in final.output
                                     if item.type == "function_call"})
        return final

    def check_responses(self, client, family):
        """The same calls as items of a response; with their outputs they equal the chat of the next
        turn."""
        content, said, wanted = ANSWERS[family]
        for stream in (False, True):
            reply = self.respond(client, said, stream)
            calls = [item for item in reply.output if item.type == "function_call"]
            texts = [item.content[0].text for item in reply.output if item.type == "message"]
            self.assertEqual((texts, reply.status), ([content] if content else [], "completed"))
            self.same([(c.name, c.arguments, c.call_id) for c in calls], wanted)
            self.assertEqual({c.id for c in calls}, {"fc_" + c.call_id for c in calls})
        turn = [{"role": "user", "content": "Go"}, *reply.output, *(
            {"type": "function_call_output", "call_id": c.call_id, "output": "7"} for c in calls)]
        next_turn = client.responses.create(model="x", input=turn, tools=FLAT, max_output_tokens=1)
        chat = [turn[0], {"role": "assistant", "content": content, "tool_calls": [
            {"id": c.call_id, "type": "function", "function": {
                "name": c.name, "arguments": c.arguments}} for c in calls]},
                *({"role": "tool", "tool_call_id": c.call_id, "name": c.name, "content": "7"}
                  for c in calls)]
        same = client.chat.completions.create(model="x", messages=chat, tools=TOOLS, max_tokens=1)
        self.assertEqual(next_turn.usage.input_tokens, same.usage.prompt_tokens)
        self.assertEqual(same.usage.prompt_tokens_details.cached_tokens,
                         same.usage.prompt_tokens - 1)  # the same tokens, which were already
                                                        # computed
        plain = self.respond(client, said, False, tool_choice="none")
        self.assertEqual((plain.output_text, plain.tool_choice), (said, "none"))

    def test_qwen(self):
        """Objects in tags, with content before them; a truncated call stays text."""
        self.check_family("qwen")

    def test_others(self):
        """A list after a marker, a bare object, messages in channels."""
        for family in ("mistral", "llama3", "harmony"):
            with self.subTest(family=family):
                self.check_family(family)

    def served(self, family, markers=()):
        """A server and its client for the template of a family; `markers` are special tokens."""
        folder = with_template(self.dir / family, family, markers)
        server = self.enterContext(Server(model=folder))
        return server, self.enterContext(openai.OpenAI(
            base_url=server.url + "/v1", api_key="none", max_retries=0))

    def forced(self, client, choice, stream, **fields):
        """The calls of an answer that consists only of calls."""
        asked = {"model": "x", "messages": [{"role": "user", "content": "Go"}], "tools": STRICT,
                 "tool_choice": choice, "temperature": 1.0, "max_tokens": 300, **fields}
        if not stream:
            (choice,) = client.chat.completions.create(**asked).choices
            self.assertEqual((choice.message.content, choice.finish_reason), (None, "tool_calls"))
            calls = [call.function for call in choice.message.tool_calls]
        else:
            calls, finish = [], None
            for chunk in client.chat.completions.create(**asked, stream=True):
                (choice,) = chunk.choices
                self.assertIn(choice.delta.content, ("", "\n", None))
                calls += [call.function for call in choice.delta.tool_calls or []]
                finish = choice.finish_reason or finish
            self.assertEqual(finish, "tool_calls")
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in STRICT}
        for call in calls:
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])
        return [(call.name, call.arguments) for call in calls]

    def check_forced(self, family, markers=()):
        """Random calls satisfy their schemas; whole and streamed they are the same."""
        server, client = self.served(family, markers)
        seen = set()
        for seed in range(2):
            for choice in ("required", NAMED):
                calls = self.forced(client, choice, False, seed=seed, parallel_tool_calls=False)
                self.assertEqual(calls, self.forced(client, choice, True, seed=seed,
                                                    parallel_tool_calls=False))
                self.assertEqual(len(calls), 1)
                seen.add((choice == NAMED, calls[0][0]))
        self.assertIn((False, "weather"), seen)
        self.assertNotIn((True, "weather"), seen)
        if family == "qwen":  # several calls, until there is no more room
            (choice,) = client.chat.completions.create(
                model="x", messages=[{"role": "user", "content": "Go"}], tools=STRICT, seed=1,
                temperature=1.0, max_tokens=700, tool_choice=NAMED).choices
            self.assertGreater(len(choice.message.tool_calls), 1)
        (choice,) = client.chat.completions.create(
            model="x", messages=[{"role": "user", "content": "Go"}], tools=LOOSE, seed=0,
            max_tokens=60, temperature=1.0).choices
        self.assertIsNone(choice.message.tool_calls)  # negative control: nothing is forced here
        return server

    def test_forced(self):
        """tool_choice "required" or a function: only valid calls, in each syntax."""
        for family in ("qwen", "llama3", "harmony"):
            with self.subTest(family=family):
                self.check_forced(family)

    def test_forced_markers(self):
        """The same if the marker is a special token, which is then part of the answer."""
        server = self.check_forced("mistral", ["[TOOL_CALLS]"])
        reply = server.good("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Go"}], "tools": STRICT,
            "tool_choice": "required", "return_token_ids": True, "max_tokens": 200})
        self.assertEqual(reply["choices"][0]["token_ids"][0], 511)

    def test_optional(self):
        """With tool_choice "auto", strict functions follow their schemas, and calls can be limited
        to one."""
        server, client = self.served("mistral", ["[TOOL_CALLS]"])
        def ask(tools, **fields):
            (choice,) = client.chat.completions.create(
                **{"model": "x", "messages": [{"role": "user", "content": "Go"}], "tools": tools,
                   "seed": 3, "temperature": 1.0, "logit_bias": {"511": 100}, "max_tokens": 300,
                   **fields}).choices
            return choice

        choice = ask(STRICT[:1], parallel_tool_calls=False)  # the bias demands the marker, and the
                                                             # mask the rest
        self.assertEqual(choice.finish_reason, "tool_calls")
        (call,) = choice.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), STRICT[0]["function"]["parameters"])
        choice = ask(LOOSE)  # negative control: no mask
        self.assertEqual((choice.message.tool_calls, choice.finish_reason), (None, "length"))
        choice = ask(LOOSE, parallel_tool_calls=False, max_tokens=900)
        self.assertEqual(len(choice.message.tool_calls), 1)
        choice = ask(STRICT, response_format={"type": "json_object"}, max_tokens=5)
        self.assertTrue(choice.message.content.startswith("{"))

    def test_optional_messages(self):
        """The same in messages, where a call is in the header: schemas are compiled."""
        server, client = self.served("harmony", ["<|channel|>", "<|message|>"])
        odd = [{"type": "function", "function": {
            "name": "odd", "strict": True, "parameters": {"properties": {"a": {"multipleOf": 2}}}}}]
        for fields in ({"tools": STRICT}, {"tools": LOOSE, "parallel_tool_calls": False}):
            (choice,) = client.chat.completions.create(
                model="x", messages=[{"role": "user", "content": "Go"}], seed=1, max_tokens=60,
                temperature=1.0, **fields).choices
            self.assertNotIn("to=functions.", choice.message.content)
        status, reply = server.request("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "tools": odd})
        self.assertEqual((status, reply["error"]["param"]), (400, "tools"))
        self.assertIn("multipleOf", reply["error"]["message"])

    def test_forced_response(self):
        """tool_choice of a response, in its own form; invalid items and tools are a 400."""
        server, client = self.served("qwen")
        asked = {"model": "x", "input": "Go", "parallel_tool_calls": False,
                 "tools": [{"type": "function", **tool["function"]} for tool in STRICT],
                 "tool_choice": {"type": "function", "name": "clock"}, "max_output_tokens": 300}
        reply = client.responses.create(**asked, extra_body={"seed": 1})
        (call,) = reply.output
        jsonschema.validate(json.loads(call.arguments), STRICT[1]["function"]["parameters"])
        self.assertEqual((call.name, reply.status, reply.tool_choice.name, reply.parallel_tool_calls),
                         ("clock", "completed", "clock", False))
        cut = client.responses.create(**{**asked, "max_output_tokens": 9})
        self.assertEqual((cut.status, cut.output[0].type), ("incomplete", "message"))
        call = {"type": "function_call", "call_id": "a", "name": "clock", "arguments": "{}"}
        out = {"type": "function_call_output", "call_id": "a", "output": "x"}
        for param, fields in (
                ("tools", {"tools": [{"type": "web_search"}]}), ("tools", {"tools": [1]}),
                ("tool_choice", {"tool_choice": {"type": "function", "name": "x"}}),
                ("tool_choice", {"tool_choice": {"type": "web_search"}}),
                ("max_tool_calls", {"max_tool_calls": 1}),
                ("input", {"input": [out]}), ("input", {"input": [call, {**out, "call_id": "b"}]}),
                ("input", {"input": [call, {**out, "output": 1}]}),
                ("input", {"input": [{**call, "call_id": None}]}),
                ("input", {"input": [{**call, "arguments": {}}]}),
                ("input", {"input": [{"type": "reasoning", "summary": []}]})):
            with self.subTest(fields=fields):
                status, reply = server.request("/v1/responses", {**asked, **fields})
                self.assertEqual((status, reply["error"]["param"]), (400, param))

    def test_forced_wrong(self):
        """Calls that cannot be forced are a 400 that names the field and the place in the
        schema."""
        server, _ = self.served("qwen")
        odd = {"name": "odd", "parameters": {"properties": {"a": {"multipleOf": 2}}}}
        rows = [("tool_choice", {"tools": None}), ("tool_choice", {"tools": []}),
                ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "x"}}}),
                ("tool_choice", {"tool_choice": {"type": "function"}}),
                ("tool_choice", {"tool_choice": {"type": "allowed_tools"}}),
                ("tool_choice", {"tool_choice": "always"}), ("tool_choice", {"tool_choice": 1}),
                ("tool_choice", {"response_format": {"type": "json_object"}}),
                ("tool_choice", {"grammar": "root ::= \"x\""}),
                ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
                ("tools", {"tools": [{"type": "function", "function": odd}]}),
                ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
                ("tools", {"tools": {"a": 1}})]
        for param, fields in rows:
            with self.subTest(fields=fields):
                status, reply = server.request("/v1/chat/completions", {
                    "messages": [{"role": "user", "content": "x"}], "tools": STRICT,
                    "tool_choice": "required", "max_tokens": 1, **fields})
                self.assertEqual((status, reply["error"]["param"]), (400, param))
        status, reply = server.request("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "tool_choice": "required",
            "tools": [{"type": "function", "function": odd}]})
        for word in ("multipleOf", "odd", "#/properties/a"):
            self.assertIn(word, reply["error"]["message"])
        with Server() as plain:  # its template has no calls
            status, reply = plain.request("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "x"}], "tools": STRICT,
                "tool_choice": "required"})
            self.assertEqual((status, reply["error"]["param"]), (400, "tool_choice"))


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
