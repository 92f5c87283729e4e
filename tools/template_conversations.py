"""Conversations for make_templates.py: typical chats, and messages that templates refuse."""


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def user(content):
    return say("user", content)


def bot(content, **more):
    return say("assistant", content, **more)


def call(name, arguments, identifier="abcdefghi"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(name, description, properties, required=()):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SYSTEM = say("system", "Be brief.")
WEATHER = tool(
    "weather",
    "The weather at a place; \"now\" & here",
    {
        "place": {"type": "string", "description": "a town, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer"},
        "points": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
    },
    ["place"],
)
CLOCK = tool("clock", "The time", {})
NESTED = {"place": "Köln", "opts": {"units": ["C", "F"], "deep": {"a": [1, 2.5, None, True, {"b": "\"q\" \n <x>"}]}}}
SHORT = [user("Hi"), bot("Hello!"), user("How are you?")]
LONG = [m for i in range(6) for m in (user(f"question {i}"), bot(f"answer {i}"))] + [user("last")]
CALLS = [
    user("Weather in Köln?"),
    {"role": "assistant", "content": "", "tool_calls": [call("weather", NESTED)]},
    say("tool", "{\"t\": 21}", name="weather", tool_call_id="abcdefghi"),
]
TWO_CALLS = [
    user("Weather and time?"),
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [call("weather", {"place": "Rome"}), call("clock", {}, "123456789")],
    },
    say("tool", "sunny", name="weather", tool_call_id="abcdefghi"),
    say("tool", "noon", name="clock", tool_call_id="123456789"),
    bot("Sunny, and noon."),
    user("Thanks"),
]
THINK = [user("2+2?"), bot("<think>\nadd them\n</think>\n\n4"), user("3+3?"), bot("<think>six</think>6")]
PARTS = [user([{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": " what is it?"}])]

_CHATS = [
    [user("Hi")],
    SHORT,
    [SYSTEM, user("Hi")],
    [SYSTEM, *SHORT],
    LONG,
    [SYSTEM, *LONG, bot("done")],
    [user("")],
    [say("system", ""), user("Hi"), bot(""), user("x")],
    [user("  spaces \n\n and lines\n"), bot("\n\ttabs\t\n"), user("ok ")],
    [say("system", "Über – «ñ» 日本語 😀"), user("Straße 👩‍👩‍👧 \u200b\u00a0x\u3000"), bot("Да\u2028да"), user("עברית")],
    [user("<|im_end|>[INST]{{ 7 }}{% if %}{# c #}"), bot("</s><s>"), user("quotes ' \" \\ \\n `")],
    [user("a\r\nb\rc\n"), bot("1\n2"), user("\n")],
    [user("Hi"), user("again")],
    [bot("I begin"), user("Hi")],
    [user("Hi"), say("critic", "no such role")],
    [SYSTEM, SYSTEM, user("two systems")],
    [SYSTEM],
    [user(None)],
    [user("Hi"), bot(None), user("x")],
    [{"role": "user"}],
    PARTS,
    [say("system", [{"type": "text", "text": "Parts."}]), *PARTS, bot([{"type": "text", "text": "A cat."}])],
    [user([])],
    [user("Hi"), bot("Hello"), user("x" * 300)],
    THINK,
    [*THINK, user("and 4+4?")],
    [user("x?"), bot("y", reasoning_content="think first\n"), user("z?"), bot("w", reasoning_content="again")],
    [user("x?"), bot("y", thinking=" old name ")],
    [user(7)],
    [user({"text": "a mapping"})],
    [user("<tool_response>fake</tool_response>"), bot("hm")],
    [],
]
CONVERSATIONS = [{"messages": m, "add_generation_prompt": g} for m in _CHATS for g in (False, True)]
CONVERSATIONS += [
    {"messages": SHORT, "tools": [WEATHER], "add_generation_prompt": True},
    {"messages": [SYSTEM, *SHORT], "tools": [WEATHER, CLOCK], "add_generation_prompt": True},
    {"messages": CALLS, "tools": [WEATHER], "add_generation_prompt": True},
    {"messages": [SYSTEM, *CALLS, bot("21 degrees.")], "tools": [WEATHER, CLOCK], "add_generation_prompt": False},
    {"messages": CALLS, "add_generation_prompt": True},
    {"messages": TWO_CALLS, "tools": [WEATHER, CLOCK], "add_generation_prompt": True},
    {"messages": TWO_CALLS[:4], "add_generation_prompt": True},
    {
        "messages": [user("x"), {"role": "assistant", "tool_calls": [call("weather", "{\"place\": \"a string\"}", "short")]}],
        "tools": [WEATHER],
        "add_generation_prompt": False,
    },
    {
        "messages": [user("x"), {"role": "assistant", "content": None, "thinking": "hm", "tool_calls": [call("clock", {})]},
                     say("tool", {"content": {"deep": [1, "é"]}}, name="clock", tool_call_id="abcdefghi")],
        "tools": [CLOCK],
        "add_generation_prompt": True,
    },
    {"messages": SHORT, "tools": [], "add_generation_prompt": True},
    {"messages": SHORT, "tools": [{"type": "function", "function": {"name": "bare"}}], "add_generation_prompt": True},
    {"messages": SHORT, "add_generation_prompt": True, "enable_thinking": False},
    {"messages": SHORT, "add_generation_prompt": True, "enable_thinking": True},
    {"messages": SHORT, "add_generation_prompt": True, "date_string": "21 Nov 2026", "reasoning_effort": "high"},
    {"messages": SHORT, "documents": [{"title": "T", "text": "é"}], "add_generation_prompt": True},
]

# How JSON and templates treat unusual texts, numbers and schemas.
PLAN = tool(
    "plan",
    "Plan\na \"trip\"\twith <b>é</b> \u2028 \u007f \U0001F600 \\n",
    {
        "legs": {"type": "array", "items": {"type": ["string", "null"]}, "description": " legs \n", "default": []},
        "rate": {"type": "number", "default": 1e-7, "description": "r",
                 "enum": [0.1, 1.0, -0.0, 1e16, 123456789012345680.0, 1e22, 5e-324, 2**53]},
        "opts": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "o"},
        "any": {"anyOf": [{"type": "string"}, {"$ref": "#/x"}], "description": ""},
        "flag": {"type": "boolean", "default": False, "description": "d", "nullable": True, "x": None},
    },
    ["legs", "rate"],
)
PLAN["function"]["return"] = {"type": "object", "description": "the plan"}
EDGES = "\x01\x1f\x7f\x80\x9f\xad\u0085\u061c\ufeff\U000e0001\ud7ff\ue000\uffff\U0010ffff'\"\\`"
CONVERSATIONS += [
    {
        "messages": [
            SYSTEM,
            user([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://x"}},
                  {"type": "text", "text": "b\u200d\U0001F469"}]),
            bot("x", reasoning="why\n\n"),
            user("next"),
        ],
        "add_generation_prompt": True,
    },
    {"messages": CALLS, "tools": [PLAN, CLOCK, WEATHER], "add_generation_prompt": True},
    {"messages": CALLS, "builtin_tools": ["weather", "search"], "add_generation_prompt": True},
    {
        "messages": [
            user("x"),
            {"role": "assistant", "content": None, "tool_calls": [call("weather", {"place": "a", "unit": "b"})]},
            {"role": "ipython", "content": {"r": [1, 2, {"é": None}]}},
        ],
        "add_generation_prompt": True,
    },
    {
        "messages": [
            user("x"),
            bot("<think>\n\na\n\n</think>\n\n\nb <think>c</think> d\n"),
            user("y /no_think"),
            bot("", reasoning_content="\n\nr\n\n"),
            bot("c", reasoning_content="rr", tool_calls=[
                call("a", {"x": [1, 2.50, 1e100], "s": "é\u2028</tool_call>"}),
                {"name": "b", "arguments": "{\"raw\": 1}"},
            ]),
            say("tool", "1"),
            say("tool", "2"),
            user("<tool_response>\nz\n</tool_response>"),
        ],
        "tools": [WEATHER],
        "enable_thinking": False,
        "add_generation_prompt": True,
    },
    {
        "messages": SHORT,
        "documents": [{"doc_id": 1, "text": "é <1>"}, {"doc_id": "b", "title": "T", "text": "two"}],
        "controls": {"citations": True, "length": "short"},
        "tools": [PLAN],
        "add_generation_prompt": True,
    },
    {"messages": [{**SYSTEM, "tools": "[{}]"}, user("İSTANBUL ǅ ﬁ ß ΑΣ"), bot("ok", refusal=None)],
     "add_generation_prompt": False},
    {"messages": [user([["a"], [{"type": "text", "text": "n"}]]), bot([]), user([{"type": "text"}])],
     "add_generation_prompt": True},
    {"messages": [user("x"), say("tool", [{"output": "o1"}, {"type": "text", "text": "t"}, 7, None], name="n")],
     "add_generation_prompt": True},
    {
        "messages": [
            user("n"),
            bot("t", tool_calls=[]),
            bot("t", tool_calls=None),
            bot("", tool_calls=[call("f", {"n": -0.0, "m": 1e15, "k": 1.5e-5, "big": 2**53 + 1, "e": "", "l": [], "d": {}})]),
        ],
        "tools": [CLOCK],
        "add_generation_prompt": False,
    },
    {"messages": [user(EDGES)], "tools": [tool("a\x02b", EDGES, {})], "add_generation_prompt": True},
]
