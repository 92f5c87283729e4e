"""Model folders for the tests of generate, chat and tokenize: copies of test models with another
config, tokenizer or template, and the output of `generate`."""

import json
import re
import shutil

from harness import MODELS, ROOT

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")
STEP = re.compile(r"step (\d+)  id (\d+)  p (\d+\.\d\d) %  phase (prefill|decode|draft)  text (\".*\")")


def render(messages):
    """The text of TEMPLATE, followed by a generation prompt."""
    return "".join(f"[{role}] {text}\n" for role, text in messages) + "[assistant] "


def copy_model(folder, name="llama", search=None, model=None, drop=(), template=TEMPLATE):
    """A copy of a test model in `folder`, with settings of genai_config.json replaced and files
    removed."""
    folder.mkdir(parents=True)
    for path in (MODELS / name).iterdir():
        if path.is_file() and path.name not in drop:
            shutil.copy(path, folder)
    config = folder / "genai_config.json"
    if config.exists():
        settings = json.loads(config.read_text())
        settings["search"].update(search or {})
        settings["model"].update(model or {})
        config.write_text(json.dumps(settings))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def add_bos(folder):
    """Changes the tokenizer's post-processor to add <s>, id 256, before every text."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}}
    path.write_text(json.dumps(data))
    return folder


def steps(err):
    """(step, id, percent, phase, text) of each line of --log-steps."""
    found = []
    for line in err.splitlines():
        if line.startswith("step "):
            match = STEP.fullmatch(line)
            if not match:
                raise AssertionError(f"not a step: {line}")
            found.append((int(match[1]), int(match[2]), float(match[3]), match[4],
                          json.loads(match[5])))
    return found


def tokenizer(name="llama"):
    """The model's tokenizer, as the library `tokenizers` runs it."""
    import tokenizers
    return tokenizers.Tokenizer.from_file(str(MODELS / name / "tokenizer.json"))


def with_template(folder, family, markers=()):
    """tiny-gqa with the template of a family (test/templates); `markers` are special tokens, with
    ids from 511 downwards."""
    shutil.copytree(ROOT / "models" / "tiny-gqa", folder)
    shutil.copy(ROOT / "test" / "templates" / family / "template.jinja", folder / "chat_template.jinja")
    own = json.loads((folder / "tokenizer.json").read_text())
    for marker in markers:  # replaces the token that was learnt last
        own["model"]["merges"].pop()
        _, number = own["model"]["vocab"].popitem()
        own["added_tokens"].append({
            "id": number, "content": marker, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True})
    (folder / "tokenizer.json").write_text(json.dumps(own))
    return folder
