"""Ctrl-C while a long text is tokenized, rendered or decoded."""

import os
import signal
import threading
import time

import gqac
import pytest
from conftest import TINY
from gqac import _library

TEXT = "a b " * 2_000_000
MESSAGES = [{"role": "user", "content": TEXT}] * 2


class Watched:
    """A function of the library that notes when a call begins and ends."""

    def __init__(self, function):
        self.function, self.began, self.ended = function, threading.Event(), threading.Event()

    def __call__(self, *arguments):
        self.began.set()
        try:
            return self.function(*arguments)
        finally:
            self.ended.set()


@pytest.mark.parametrize(("name", "work"), [
    ("gqac_text_tokenize_with", lambda model: model.tokenize(TEXT)),
    ("gqac_text_tokenize_with", lambda model: model.generate(TEXT)),
    ("gqac_text_tokenize_with", lambda model: model.score(TEXT)),
    ("gqac_text_render", lambda model: model.chat(MESSAGES)),
    ("gqac_text_detokenize", lambda model: model.detokenize([41] * 8_000_000)),
])
def test_ctrl_c_ends_the_wait_for_a_long_text(monkeypatch, name, work):
    """It comes before the function has returned, which goes on although the model is closed."""
    watched = Watched(getattr(_library.lib, name))
    monkeypatch.setattr(_library.lib, name, watched)
    model = gqac.Model(TINY, threads=1)
    texts = model.texts

    def send():
        watched.began.wait()
        time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        work(model)
    assert not watched.ended.is_set()
    model.close()
    assert texts._pointer
    sender.join()
    assert watched.ended.wait(20)
    end = time.monotonic() + 20
    while texts._pointer and time.monotonic() < end:  # the thread frees it
        time.sleep(0.001)
    assert not texts._pointer


def test_short_texts_start_no_thread(model, monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    ids = model.tokenize("a b " * 4096)
    assert model.detokenize(ids[:4096]) and model.render([{"role": "user", "content": "a"}])
    assert not started
