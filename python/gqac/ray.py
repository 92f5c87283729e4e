"""Replicas of a model on Ray Serve, each with its own scheduler and prefix store. Requests of one
session go to one replica, whose cache has the beginning of their prompts. Any replica returns the
same ids. Requires Ray: pip install 'ray[serve]'.

    import gqac.ray
    from ray import serve

    replies = serve.run(gqac.ray.application("tiny.gqac", replicas=2))
    said = replies.generate.remote("She had been", session="anne", max_new_tokens=20).result()
    print(said["text"])
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

from ._model import Model
from ._scheduler import Scheduler
from ._store import PrefixStore

try:
    from ray import serve
    from ray.serve.config import RequestRouterConfig
    from ray.serve.request_router import RequestRouter
except ImportError as error:
    raise ImportError("gqac.ray needs Ray Serve: pip install 'ray[serve]'") from error

__all__ = ["Replica", "SessionRouter", "application"]


def ranked(session: str, names: list[str]) -> list[str]:
    """The names in the order in which a session prefers them. When one is added or removed, the
    others keep their order (rendezvous hashing)."""
    return sorted(names, reverse=True,
                  key=lambda name: hashlib.sha256(f"{session}\0{name}".encode()).digest())


class SessionRouter(RequestRouter):  # type: ignore[misc]
    """Chooses the replica that a session prefers, or the next one if that replica is full. Requests
    without a session are distributed by their number."""

    _number = 0

    async def choose_replicas(self, candidate_replicas: list[Any],
                              pending_request: Any = None) -> list[list[Any]]:
        """The replicas, one after another."""
        session = pending_request.kwargs.get("session") if pending_request else None
        if session is None:
            self._number += 1
            session = f"\0{self._number}"
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        return [[by_name[name]] for name in ranked(str(session), list(by_name))]


class Replica:
    """What runs in each replica. store: options of gqac.PrefixStore; with a remote tier, prompts and
    answers are saved; model: options of gqac.Model."""

    def __init__(self, path: str, store: dict[str, Any], model: dict[str, Any]) -> None:
        self._model = Model(path, **model)
        self._store = PrefixStore(self._model, **store)
        self._scheduler = Scheduler(self._model, store=self._store, save=store.get("remote") is not None)

    def __del__(self) -> None:
        """Completes pending saves of answers: Ray Serve calls this on a graceful shutdown."""
        if hasattr(self, "_scheduler"):  # the constructor has not failed
            self._scheduler.close()

    async def generate(self, prompt: str | None = None, *, session: str | None = None,
                       **options: Any) -> dict[str, Any]:
        """A gqac.Answer as a dict. session: requests with the same one go to the same replica;
        options: those of gqac.Scheduler.submit, for instance ids, max_new_tokens, seed, tenant."""
        request = self._scheduler.submit(prompt, **options)
        try:
            return (await request.wait())._asdict()
        finally:
            request.cancel()

    async def stream(self, prompt: str | None = None, *, session: str | None = None,
                     **options: Any) -> AsyncIterator[dict[str, Any]]:
        """Each gqac.Token as a dict; call it by handle.options(stream=True)."""
        request = self._scheduler.submit(prompt, **options)
        try:
            async for token in request:
                yield token._asdict()
        finally:
            request.cancel()

    def statistics(self, session: str | None = None) -> dict[str, Any]:
        """Those of the store of the replica that the session prefers, and its process id."""
        return {**self._store.statistics._asdict(), "pid": os.getpid()}


def application(path: str | os.PathLike[str], *, replicas: int = 1, budget: int = 4 << 30,
                folder: str | os.PathLike[str] | None = None, remote: str | None = None,
                store: dict[str, Any] | None = None, requests: int = 64,
                deployment: dict[str, Any] | None = None, **model: Any) -> serve.Application:
    """An application for ray.serve.run. path: the model, under the same path on every machine;
    replicas: their number; budget: maximum bytes of the cached prefixes of each; folder: where
    snapshot files are found; remote: the address of a Redis server, where each replica finds what
    the others have computed; store: further options of gqac.PrefixStore; requests: maximum number
    of requests that a replica has at a time; deployment: further options of ray.serve.deployment;
    model: options of gqac.Model, of which threads (1) are also reserved as CPUs."""
    model.setdefault("threads", 1)
    options = {"name": "gqac", "num_replicas": replicas, "max_ongoing_requests": requests,
               "ray_actor_options": {"num_cpus": model["threads"]},
               "request_router_config": RequestRouterConfig(request_router_class=SessionRouter),
               **(deployment or {})}
    kept = {"budget": budget, "folder": None if folder is None else os.path.abspath(folder),
            "remote": remote, **(store or {})}
    return serve.deployment(**options)(Replica).bind(os.path.abspath(path), kept, model)
