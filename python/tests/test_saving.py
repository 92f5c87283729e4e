"""How a scheduler saves answers: what it keeps, what it drops, and what fails."""

import gc
import threading
import time
import weakref

import gqac
import pytest
from gqac import _scheduler

WAITING = 64  # of the queue


class Watched:
    """A store whose `save` may fail or wait, and that knows what was saved. begun: a save has begun; go:
    it may continue."""

    def __init__(self, model, folder):
        self.store = gqac.PrefixStore(model, folder=folder)
        self.saved, self.errors = [], []
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()
        self.store.save, self._save = self.save, self.store.save

    def save(self, sequence, *, tenant):
        """Instead of PrefixStore.save."""
        self.begun.set()
        assert self.go.wait(60)
        if self.errors:
            raise self.errors.pop()
        self._save(sequence, tenant=tenant)
        self.saved.append(weakref.ref(sequence))


@pytest.fixture
def watched(model, tmp_path):
    """With an empty folder."""
    return Watched(model, tmp_path)


def answer(scheduler, first):
    """Asks for one token after a prompt of three."""
    return scheduler.submit(ids=[first, 7, 9], max_new_tokens=1).result()


def test_idle(model, watched):
    """A scheduler that waits for requests keeps no sequence that it has saved."""
    with gqac.Scheduler(model, store=watched.store, save=True) as scheduler:
        answer(scheduler, 1)
        deadline = time.monotonic() + 20
        while not watched.saved or watched.saved[0]():
            assert time.monotonic() < deadline
            gc.collect()
            time.sleep(0.01)


def test_full(model, watched, caplog):
    """What comes while the queue is full is dropped, and the log says so."""
    watched.go.clear()
    with gqac.Scheduler(model, store=watched.store, save=True) as scheduler:
        try:
            answer(scheduler, 1)
            assert watched.begun.wait(60)  # the queue is empty again
            for i in range(WAITING):
                answer(scheduler, 2 + i)
            assert not caplog.messages
            for i in range(2):
                answer(scheduler, 100 + i)
            assert caplog.messages == ["an answer was not saved: too many others wait"] * 2
        finally:
            watched.go.set()
    assert len(watched.saved) == 1 + WAITING


def test_fork_fails(model, watched, caplog, monkeypatch):
    """An answer whose rows cannot be kept is whole, and the log says what failed."""
    real = _scheduler.call

    def fail(function, *words):
        if function == "gqac_sequence_fork":
            raise gqac.CapacityError("no memory", status="NO_MEMORY")
        real(function, *words)
    with gqac.Scheduler(model, store=watched.store, save=True) as scheduler:
        want = answer(scheduler, 1)
        monkeypatch.setattr(_scheduler, "call", fail)
        assert answer(scheduler, 1).ids == want.ids
        monkeypatch.undo()
    assert (caplog.messages, len(watched.saved)) == (["an answer was not saved: no memory"], 1)


@pytest.mark.parametrize("error", [gqac.FileError("the disk is full"), ValueError("the disk is full")])
def test_save_fails(model, watched, caplog, error):
    """Any exception is logged, and the next answers are saved."""
    watched.errors.append(error)
    with gqac.Scheduler(model, store=watched.store, save=True) as scheduler:
        for i in range(3):
            answer(scheduler, 1 + i)
    assert (caplog.messages, len(watched.saved)) == (["an answer was not saved: the disk is full"], 2)
