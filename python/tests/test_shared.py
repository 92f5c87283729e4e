"""Threads that read the same answer."""

import threading
import time

import gqac

PROMPT = "She had been"


def in_threads(work, n=4):
    """What each of n threads returns or raises. Daemons: one that never ends fails the test alone."""
    found = []

    def run():
        try:
            found.append(work())
        except gqac.Error as error:
            found.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert len(found) == n
    return found


def test_threads_share_a_stream(model):
    alone = model.generate(PROMPT, max_new_tokens=200)
    stream = model.generate(PROMPT, max_new_tokens=200, stream=True)
    found = in_threads(lambda: ([piece.id for piece in stream], stream.result))
    assert sorted(token for ids, _ in found for token in ids) == sorted(alone.ids)
    assert [result.ids for _, result in found] == [alone.ids] * 4
    assert list(stream) == []


def test_error_of_a_shared_stream_is_raised_once(model):
    stream = model.generate(PROMPT, max_new_tokens=400, stream=True)

    def read():
        for _ in stream:
            stream._lease.stop.flag.value = True

    found = in_threads(read)
    assert [type(x) for x in found if x] == [gqac.AbortedError] and found.count(None) == 3
    assert list(stream) == [] and stream.result is None


def test_threads_share_a_request(model):
    alone = model.generate(PROMPT, max_new_tokens=200)
    with gqac.Scheduler(model) as scheduler:
        request = scheduler.submit(PROMPT, max_new_tokens=200)
        assert [answer.ids for answer in in_threads(request.result)] == [alone.ids] * 4
        request = scheduler.submit(PROMPT, max_new_tokens=400)

        def read():
            for _ in request:
                request._put(gqac.CapacityError("no memory is left"))
            request.result()

        assert [type(x) for x in in_threads(read)] == [gqac.CapacityError] * 4
