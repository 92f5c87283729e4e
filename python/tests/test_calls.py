"""Messages of answers: calls of tools, in the syntax of the chat template."""

import json
import shutil

import gqac
import jsonschema
import pytest
from conftest import ROOT, TINY

TOOLS = [{"type": "function", "function": {"name": "weather"}}]
CALL = '{"place": "K\u00f6ln", "days": [1, 2.50]}'
SAID = f'So:\n<tool_call>\n{{"name": "weather", "arguments": {CALL}}}\n</tool_call>'


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """tiny-gqa with a template that has calls in tags."""
    folder = shutil.copytree(TINY, tmp_path_factory.mktemp("qwen") / "model")
    shutil.copy(ROOT / "test" / "templates" / "qwen" / "template.jinja",
                folder / "chat_template.jinja")
    with gqac.Model(folder) as model:
        yield model


def test_calls_of_an_answer(qwen):
    turns = [{"role": "user", "content": "Go"}]
    said = qwen.chat(turns, tools=TOOLS, grammar="root ::= " + json.dumps(SAID, ensure_ascii=False))
    answer = qwen.message(said, tools=TOOLS)
    (made,) = answer["tool_calls"]
    assert answer["content"] == "So:" and len(made["id"]) == 9
    assert made["function"] == {"name": "weather", "arguments": CALL}
    made["function"]["arguments"] = json.loads(CALL)
    assert "<tool_call>" in qwen.render([*turns, answer], tools=TOOLS)


def test_what_is_no_call(qwen, model):
    ids = qwen.tokenize(SAID, special=False)
    assert qwen.message(ids)["tool_calls"]  # any name
    assert qwen.message(ids, tools=[]) == {"role": "assistant", "content": SAID}
    assert qwen.message(ids, stop=["</tool"])["content"] == SAID.split("</tool")[0]
    assert model.message(ids) == {"role": "assistant", "content": SAID}  # another template


SCHEMA = {"type": "object", "required": ["place"], "additionalProperties": False,
          "properties": {"place": {"enum": ["K\u00f6ln", "Rome"]}}}
OFFERED = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
           {"type": "function", "function": {"name": "clock"}}]
CLOCK = {"type": "function", "function": {"name": "clock"}}


def test_forced_calls(qwen):
    turns = [{"role": "user", "content": "Go"}]
    asked = {"tools": OFFERED, "parallel_tool_calls": False, "max_new_tokens": 90}
    for seed in range(2):
        for choice in ("required", CLOCK):
            said = qwen.chat(turns, tool_choice=choice, seed=seed, **asked)
            answer = qwen.message(said, tools=OFFERED)
            (made,) = answer["tool_calls"]
            assert said.finish_reason == "stop" and answer["content"] == ""
            if made["function"]["name"] == "weather":
                jsonschema.validate(json.loads(made["function"]["arguments"]), SCHEMA)
            else:
                assert json.loads(made["function"]["arguments"]) == {}
            assert choice == "required" or made["function"]["name"] == "clock"
            stream = qwen.chat(turns, tool_choice=choice, seed=seed, stream=True, **asked)
            assert "".join(piece.text for piece in stream) == said.text
    free = qwen.chat(turns, tools=OFFERED, max_new_tokens=30)  # the control: no call
    assert "tool_calls" not in qwen.message(free, tools=OFFERED)
    none = qwen.chat(turns, tools=OFFERED, tool_choice="none", max_new_tokens=5)
    assert none.ids == qwen.chat(turns, max_new_tokens=5).ids


def test_wrong_choices(qwen, model):
    turns = [{"role": "user", "content": "Go"}]
    for choice in ("always", {"type": "function"}, {"function": {"name": 1}}, None):
        with pytest.raises(gqac.UsageError, match="tool_choice"):
            qwen.chat(turns, tools=OFFERED, tool_choice=choice)
    with pytest.raises(gqac.UsageError, match="no tools"):
        qwen.chat(turns, tool_choice="required")
    with pytest.raises(gqac.UsageError, match="cannot be combined"):
        qwen.chat(turns, tools=OFFERED, tool_choice="required", grammar='root ::= "a"')
    with pytest.raises(gqac.InputError, match="'x'"):
        qwen.chat(turns, tools=OFFERED, tool_choice={"function": {"name": "x"}})
    with pytest.raises(gqac.ModelError, match="syntax"):
        model.chat(turns, tools=OFFERED, tool_choice="required")
