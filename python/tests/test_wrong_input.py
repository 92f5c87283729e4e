"""Arguments that are wrong: the error is one of the package, and names the argument."""

import gqac
import numpy as np
import pytest

RAW = b"\5" + b"\0" * 7  # the id 5 as an int64


@pytest.mark.parametrize("wrong", [RAW, bytearray(RAW), RAW[:1], "5", np.bytes_(RAW[:1])])
def test_bytes_and_texts_are_no_ids(model, wrong):
    store = gqac.PrefixStore(model)
    with gqac.Scheduler(model) as scheduler:
        for take in (lambda x: model.generate(ids=x), lambda x: model.generate(ids=[5], eos=x),
                     model.detokenize, model.sequence().step, store.open, store.match, store.lookup,
                     store.pin, lambda x: store.insert(x, {}), lambda x: model.equiv(ids=x),
                     lambda x: model.equiv(tokens=4, splits=[x]), lambda x: model.bench(prompt=x),
                     model.message, lambda x: scheduler.submit(ids=x),
                     lambda x: gqac.step([(model.sequence(), x)]),
                     lambda x: model.score([5, 6], splits=x)):
            with pytest.raises(gqac.UsageError, match="integer"):
                take(wrong)
    if not isinstance(wrong, str):
        with pytest.raises(gqac.UsageError, match="ids = .* is not a list of integers"):
            model.score(wrong)


@pytest.mark.parametrize(("name", "give"), [
    ("prompt", lambda m, x: m.generate(x)), ("stop", lambda m, x: m.generate("a", stop=[x])),
    ("string", lambda m, x: m.tokenize(x)), ("kv", lambda m, x: m.sequence(kv=x)),
    ("grammar", lambda m, x: m.generate("a", grammar=x)),
    ("tenant", lambda m, x: m.session(tenant=x)),
])
def test_lone_surrogates(model, name, give):
    with pytest.raises(gqac.InputError, match=f"character 2 of {name} .* U\\+D800") as raised:
        give(model, "ab\ud800")
    assert raised.value.rule and raised.value.hint


def test_lone_surrogates_of_messages(model):
    with pytest.raises(gqac.InputError):
        model.chat([{"role": "user", "content": "\ud800"}])


@pytest.mark.parametrize(("words", "wrong"), [
    ("items = 1", lambda m: gqac.step(1)), ("items[0] = 1", lambda m: gqac.step([1])),
    ("items[1] = ", lambda m: gqac.step([(m.sequence(), [1]), (m.sequence(),)])),
    ("sequence = 'a'", lambda m: gqac.step([("a", [1])])),
    ("model = 3", lambda m: gqac.PrefixStore(3)), ("model = 3", lambda m: gqac.Scheduler(3)),
    ("model = 3", lambda m: gqac.Session(3)), ("model = 3", lambda m: gqac.run(3, {})),
    ("model = 3", lambda m: gqac.Sequence.load(3, "x")),
    ("sequence = 'x'", lambda m: gqac.PrefixStore(m).add("x")),
    ("sequence = 'x'", lambda m: gqac.Scheduler(m).submit("a", sequence="x")),
    ("store = 'x'", lambda m: gqac.Scheduler(m, store="x", save=True)),
    ("messages = 5", lambda m: m.chat(5)),
    ("variables = ", lambda m: m.chat([{"role": "user", "content": b"x"}])),
    ("inputs = [1]", lambda m: gqac.run(m, [1])), ("out = 3", lambda m: gqac.run(m, {}, out=3)),
    ("outputs = 'logits'", lambda m: gqac.run(m, {}, outputs="logits")),
    ("tensors = 3", lambda m: gqac.PrefixStore(m).insert([1], 3)),
    ("capacity = 'x'", lambda m: gqac.PrefixStore(m).lookup([1], capacity="x")),
    ("to_bytes = 'x'", lambda m: gqac.PrefixStore(m).evict("x")),
    ("most = 'x'", lambda m: gqac.PrefixStore(m).prefixes("x")),
    ("tools = 5", lambda m: m.chat([{"role": "user", "content": "x"}], tools=5)),
    ("tools = 5", lambda m: m.message([5], tools=5)), ("stop = 5", lambda m: m.message([5], stop=5)),
    ("tools = ", lambda m: m.message([5], tools=[{"name": b"x"}])),
])
def test_wrong_types(model, words, wrong):
    with pytest.raises(gqac.UsageError) as raised:
        wrong(model)
    assert raised.value.what.startswith(words) and " is not " in raised.value.what


def test_messages_that_are_nested_too_deeply(model):
    content = []
    for _ in range(5000):
        content = [content]
    with pytest.raises(gqac.UsageError, match="nested"):
        model.render([{"role": "user", "content": content}])
