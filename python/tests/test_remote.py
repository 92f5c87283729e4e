"""A remote tier of a prefix store, on a server that stands in for Redis."""

import asyncio
import ctypes
import importlib
import logging
import os
import sys
import time
import types
from pathlib import Path

import gqac
import pytest
from conftest import ROOT, TINY

sys.path.insert(0, str(ROOT / "test" / "python"))
from tiers import Authority, Fake  # noqa: E402

pytestmark = pytest.mark.skipif(
    not Path(os.environ["GQAC_LIBRARY"]).with_name("libgqac_remote.so.0").exists(),
    reason="built without hiredis")
IDS = [(k * 31 + k // 5) % 250 for k in range(150)]


@pytest.fixture
def fake():
    """A server, empty."""
    with Fake() as server:
        yield server


def ask(model, **options):
    """An answer of a scheduler with a store of its own, which saves; and the store."""
    store = gqac.PrefixStore(model, **options)
    with gqac.Scheduler(model, store=store, save=True) as scheduler:
        return scheduler.submit(ids=IDS, max_new_tokens=4).result(), store


def test_shared(model, fake):
    """What one store has saved, that of another process would find: the same ids, and fewer tokens to
    compute."""
    alone = model.generate(ids=IDS, max_new_tokens=4).ids
    first, store = ask(model, remote=fake.url, remote_ms=20000)
    assert (first.ids, first.reused_tokens) == (alone, 0)
    assert store.statistics.remote_saved == len(fake.values) == 2
    store.close()
    with gqac.Model(TINY, threads=1) as other:
        second, store = ask(other, remote=fake.url, remote_ms=20000)
        assert (second.ids, second.reused_tokens) == (alone, 128)
        assert (store.statistics.remote_hits, store.statistics.remote_saved) == (1, 0)
        sequence = gqac.PrefixStore(other, remote=fake.url, remote_ms=20000).open(IDS)
        assert len(sequence) == 128


def test_saves(model, fake, tmp_path):
    """A scheduler saves to the folder too, and for the tenant of the request; without `save` it does
    not."""
    store = gqac.PrefixStore(model, folder=tmp_path, remote=fake.url, remote_ms=20000)
    with gqac.Scheduler(model, store=store) as scheduler:
        scheduler.submit(ids=IDS, max_new_tokens=1).result()
    assert (list(tmp_path.iterdir()), fake.values) == ([], {})
    with gqac.Scheduler(model, store=store, save=True) as scheduler:
        scheduler.submit(ids=IDS, max_new_tokens=1, tenant="red").result()
    assert (len(list(tmp_path.iterdir())), len(fake.values)) == (1, 2)
    for tenant, length in (("red", 149), ("blue", 0)):
        again = gqac.PrefixStore(model, folder=tmp_path, remote=fake.url, remote_ms=20000)
        assert len(again.open(IDS, tenant=tenant)) == length


def test_fails(model, fake, caplog):
    """A server that fails changes no answer; it is counted, and the log says why."""
    fake.fault = lambda command, reply: b"-ERR out of order\r\n"
    with caplog.at_level(logging.WARNING, "gqac"):
        answer, store = ask(model, remote=fake.url, remote_ms=20000)
        fake.close()
    assert answer.ids == model.generate(ids=IDS, max_new_tokens=4).ids
    assert store.statistics.remote_errors > 0
    assert "the remote tier 127.0.0.1 failed: it refuses a command: ERR out of order" in caplog.text


def test_replica(model, fake, monkeypatch):
    """A replica of gqac.ray saves what waits when Ray ends it, here modules that stand in for Ray."""
    for name in ("ray", "ray.serve", "ray.serve.config", "ray.serve.request_router", "gqac.ray"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    del sys.modules["gqac.ray"]
    sys.modules["ray"].serve = sys.modules["ray.serve"]
    sys.modules["ray.serve"].Application = object
    sys.modules["ray.serve.config"].RequestRouterConfig = dict
    sys.modules["ray.serve.request_router"].RequestRouter = object
    replica = importlib.import_module("gqac.ray").Replica(
        TINY, {"remote": fake.url, "remote_ms": 20000}, {"threads": 1})
    save = replica._store.save

    def save_late(sequence, **options):
        time.sleep(0.5)
        save(sequence, **options)
    monkeypatch.setattr(replica._store, "save", save_late)
    answer = asyncio.run(replica.generate(ids=IDS, max_new_tokens=4))
    assert answer["ids"] == model.generate(ids=IDS, max_new_tokens=4).ids
    assert not fake.values
    replica.__del__()
    assert len(fake.values) == 2


def test_tls(model, tmp_path):
    """TLS, with a certificate of the client; files that are not what they must be."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("client")
    tls = {"remote_cacert": authority.cert, "remote_cert": cert, "remote_key": key, "remote_ms": 20000}
    with Fake(authority.context(asks=True)) as server:
        assert ask(model, remote=server.url, **tls)[1].statistics.remote_saved == 2
        begun = time.monotonic()
        _, store = ask(model, remote=server.url, remote_cacert=Authority(tmp_path, "other").cert)
        assert store.statistics.remote_saved == 0 < store.statistics.remote_errors
        assert time.monotonic() - begun < 60
    with pytest.raises(gqac.UsageError, match="certificates are given"):
        gqac.PrefixStore(model, remote="redis://localhost", remote_cacert=authority.cert)
    with pytest.raises(gqac.FileError):
        gqac.PrefixStore(model, remote="rediss://localhost", remote_cacert=tmp_path / "none")


def test_wrong(model, monkeypatch):
    """Options that are wrong, and a build without the client."""
    for wrong in ("localhost:6379", "http://localhost", ""):
        with pytest.raises(gqac.UsageError, match="address of the remote tier"):
            gqac.PrefixStore(model, remote=wrong)
    from gqac import _declarations, _library
    options = _library.make(_declarations.gqac_remote_options, address=b"localhost")
    made = ctypes.c_void_p(1)  # what lay there is no remote tier
    with pytest.raises(gqac.UsageError):
        _library.call("gqac_remote_open", ctypes.byref(options), ctypes.byref(made))
    assert made.value is None
    with pytest.raises(gqac.UsageError, match="go with remote"):
        gqac.PrefixStore(model, remote_ms=5)
    for store in (None, gqac.PrefixStore(model)):
        with pytest.raises(gqac.UsageError, match="save = True needs a store"):
            gqac.Scheduler(model, store=store, save=True)
    alone = _library.Library(_library._path())
    alone._folder = "/nowhere"
    monkeypatch.setattr(_library, "lib", alone)
    with pytest.raises(gqac.AbsentError, match="no client for a remote tier"):
        gqac.PrefixStore(model, remote="redis://localhost")
