"""Calls that fail or are interrupted leave nothing behind: no use, binding, context or stop flag."""

import gc
import shutil
import threading
import types

import gqac
import numpy as np
import pytest
from conftest import TINY
from gqac import _generate, _library, _model, _scheduler, _sequence, _store
from test_model import inputs_of


def test_objects_of_a_closed_model_are_not_made():
    opened = gqac.Model(TINY, threads=1)
    store, sequence = gqac.PrefixStore(opened), opened.sequence()
    sequence.step([1, 2])
    snapshot, program = sequence.snapshot(), opened.program
    opened.close()
    users = program._users
    for make in (sequence.fork, snapshot.restore, sequence.snapshot, lambda: store.open([1, 2])):
        with pytest.raises(gqac.UsageError, match="closed"):
            make()
        gc.collect()
        assert program._users == users
    assert sequence._handle._users == store.handle._users == 0


def test_parents_that_are_closed_while_an_object_is_made(monkeypatch):
    """Another thread closes them between the call and its end: they outlive the object."""
    makers = {"session": lambda opened, store: opened.session(store=store),
              "store": lambda opened, store: gqac.PrefixStore(opened),
              "sequence": lambda opened, store: store.open([1, 2]),
              "snapshot": lambda opened, store: opened.sequence().snapshot(),
              "scheduler": lambda opened, store: gqac.Scheduler(opened, store=store),
              "context": lambda opened, store: opened.sequence().step([1])}
    modules = (_generate, _model, _scheduler, _sequence, _store)
    for what, make in makers.items():
        opened, freed = gqac.Model(TINY, threads=1), []
        store = gqac.PrefixStore(opened)

        def call(name, *arguments, what=what, opened=opened, store=store):
            _library.call(name, *arguments)
            if name in (f"gqac_{what}_create", f"gqac_{what}_open", f"gqac_{what}_create_on",
                        "gqac_store_open", "gqac_snapshot_take"):
                opened.close()
                store.close()

        with monkeypatch.context() as patch:
            for name in (what, "program", "store"):
                function = f"gqac_{name}_free"
                free = getattr(_library.lib, function)
                patch.setattr(_library.lib, function, lambda pointer, free=free, name=name: (
                    freed.append(name), free(pointer)))
            for module in modules:
                patch.setattr(module, "call", call)
            with pytest.raises(gqac.UsageError, match="closed"):
                make(opened, store)
            gc.collect()
        assert freed.index(what) < freed.index("program") == len(freed) - 1, (what, freed)


def test_failed_run_leaves_no_output_bound(model):
    feeds = inputs_of(model, [5, 6])
    out = np.full((1, 2, 512), -7, np.float32)
    for wrong in ({"nothing": np.zeros(1, np.float32)}, {"present.0.key": np.zeros(1, np.int8)}):
        with pytest.raises(gqac.Error):
            gqac.run(model, feeds, out={"logits": out, **wrong})
        gc.collect()
        assert gqac.run(model, feeds)["logits"].shape == out.shape
        assert (out == -7).all()


def test_proof_of_no_ids_is_refused(model):
    with pytest.raises(gqac.InputError, match="at least one token"):
        model.equiv(ids=[])


def test_abandoned_stream_returns_its_context():
    with gqac.Model(TINY, threads=1) as model:
        for _ in range(3):
            stream = model.generate(ids=[5] * 9, max_new_tokens=400, stream=True)
            next(stream)
            thread = stream._thread
            del stream
            thread.join()
            assert len(model._contexts) == len(model._owned) == 1
            assert model.sequence().step([5]).shape == (1, 512)  # the stop of the stream is over


def test_ctrl_c_at_the_end_of_a_call(monkeypatch):
    """It arrives when the wait for the call has just returned."""
    made = []

    class Lock:
        def __init__(self):
            self.lock, self.waits = threading.Lock(), 0
            made.append(self)

        def acquire(self, blocking=True):
            self.waits += blocking
            got = self.lock.acquire(blocking, 5 if blocking else -1)
            if self.waits == 2:
                raise KeyboardInterrupt
            return got

        def release(self):
            self.lock.release()

    module = types.SimpleNamespace(**{**vars(threading), "Lock": Lock})
    monkeypatch.setattr(_library, "threading", module)
    stop = _library.Stop()
    with pytest.raises(KeyboardInterrupt):
        _library.interruptible(stop, lambda: None)
    assert max(lock.waits for lock in made) == 2 and not stop.flag.value


def test_texts_with_nul_are_refused(model, tmp_path):
    scheduler = gqac.Scheduler(model)
    for wrong in (lambda: gqac.Model(f"{TINY}\0"), lambda: model.sequence(kv="paged\0"),
                  lambda: model.generate("a", stop=["x\0y"]), lambda: model.equiv(kv=["paged\0"]),
                  lambda: model.session(tenant="a\0b"),
                  lambda: gqac.run(model, {"input_ids\0": [1]}),
                  lambda: scheduler.submit("a", stop=["x\0y"])):
        with pytest.raises(gqac.UsageError, match="NUL"):
            wrong()
    with pytest.raises(gqac.UsageError, match="empty stop"):
        scheduler.submit("a", stop="")
    scheduler.close()
    with pytest.raises(gqac.UsageError, match="closed"):
        scheduler.submit("a")


def test_numbers_that_do_not_fit_are_refused(model):
    """ctypes would cut them: 2**64 + 5 would be 5."""
    for wrong, kind in ((lambda: model.sequence().step([2 ** 64 + 5]), gqac.InputError),
                        (lambda: model.sequence().step([5], position=2 ** 64), gqac.InputError),
                        (lambda: model.sequence().rewind(2 ** 64), gqac.UsageError),
                        (lambda: model.plan(2 ** 64), gqac.UsageError),
                        (lambda: gqac.Model(TINY, threads=2 ** 32 + 1), gqac.UsageError),
                        (lambda: model.sequence(capacity=2 ** 64 + 5), gqac.UsageError),
                        (lambda: model.generate(ids=[1], seed=2 ** 64), gqac.UsageError),
                        (lambda: model.generate(ids=[1], n_top=2 ** 64 + 1), gqac.UsageError),
                        (lambda: model.equiv(tokens=2 ** 64 + 4), gqac.UsageError),
                        (lambda: model.bench(prompt=[0]), gqac.UsageError),
                        (lambda: gqac.Model(TINY, memory_budget=-1), gqac.UsageError)):
        with pytest.raises(kind):
            wrong()
    assert model.bench(prompt=[], new=[]) == []


def test_stop_texts_without_a_tokenizer(model, tmp_path):
    """They are refused, not ignored."""
    for path in TINY.glob("model.onnx*"):
        shutil.copy(path, tmp_path)
    with gqac.Model(tmp_path / "model.onnx", threads=1) as bare, gqac.Scheduler(bare) as scheduler:
        with pytest.raises(gqac.UsageError, match="tokenizer"):
            scheduler.submit(ids=[5], stop="x")
        found = scheduler.submit(ids=[5], max_new_tokens=2).result()
        assert (found.ids, found.text) == (model.generate(ids=[5], max_new_tokens=2,
                                                          repetition_penalty=1).ids, "")


def test_failed_item_is_not_in_use(model):
    sequence = model.sequence()
    with pytest.raises(gqac.UsageError, match="embeddings"):
        sequence.step([5], embeddings=np.zeros((1, 3), np.float32))
    assert sequence._handle._users == 0
