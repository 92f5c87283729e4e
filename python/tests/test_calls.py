"""Messages of answers: calls of tools, in the syntax of the chat template."""

import json
import shutil

import gqac
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
