"""Conversations for make_templates.py: what chats look like, and what templates refuse."""


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
