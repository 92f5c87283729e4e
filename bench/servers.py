"""Servers as engines: started with a model, called over HTTP on this machine.

Prompts are sent as token ids, so that nothing is tokenized; every id of the answer is a separate
event (server-sent events). A server is stopped (SIGSTOP) while another engine runs.
"""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

import engines

TIMEOUT = 300  # in seconds, for one request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running server; subclasses define its name, its program, and how to build it."""

    name, program, maker = "", None, ""

    def __init__(self, words, threads):
        """words: its command line, without the program and the port."""
        if not self.program.exists():
            raise engines.Absent(f"{self.name}: not built; see {self.maker}")
        self.port = free_port()
        command = [self.program, *words, "--host", "127.0.0.1", "--port", self.port]
        self.child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL,
                                      preexec_fn=engines.pinned(threads))
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        self.stop()

    def wait_until_ready(self):
        for _ in range(600):
            if self.child.poll() is not None:
                break
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise engines.Absent(f"{self.name}: it did not start")

    def stop(self):
        self.child.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.child.send_signal(signal.SIGCONT)

    def close(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.kill()
        self.child.wait()

    def events(self, path, body):
        """Sends a request; yields (seconds since then, JSON of an event)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        began = time.perf_counter()
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status != 200:
            raise engines.Absent(f"{self.name}: {response.read()[:200]}")
        for line in response:
            if line.startswith(b"data: {"):
                yield time.perf_counter() - began, json.loads(line[len(b"data: "):])
        c.close()

    def serve(self, plan):
        """Sends the requests of clients, with a thread for each: a list of their answers, and the
        total time in ms. plan: lists of (follows, new, ids) by client; see worker_load.c."""
        said, wrong = [[] for _ in plan], []

        def client(i):
            try:
                history = []
                for follows, new, ids in plan[i]:
                    prompt = history + ids if follows else ids
                    said[i].append(self.ask(prompt, new))
                    if len(said[i][-1]["ids"]) != new:
                        raise ValueError(f"an answer of {len(said[i][-1]['ids'])} ids, not {new}")
                    history = prompt + said[i][-1]["ids"]
            except Exception as error:  # after any error the times do not count
                wrong.append(error)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(plan))]
        self.go_on()
        began = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wall = 1e3 * (time.perf_counter() - began)
        self.stop()
        if wrong:
            raise engines.Absent(f"{self.name}: {wrong[0]!r}")
        return [answer for answers in said for answer in answers], wall


class LlamaServer(Server):
    """llama-server with `slots` sequences of at most `length` tokens each."""

    name = "llama-server"
    program = engines.ROOT / "build" / "peers" / "llama-build" / "bin" / "llama-server"
    maker = "./dev bench --peers"

    def __init__(self, model, threads, slots, length):
        super().__init__(["-m", model, "-t", threads, "-tb", threads, "-np", slots, "-c",
                          slots * length, "--no-webui"], threads)
        version = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        self.version = (version.stdout + version.stderr).strip().split("\n")[0]

    def ask(self, ids, new):
        """One request. Times in ms: to the first id (http), to the end, and of the prompt as the
        server itself has measured it, without HTTP and waiting; and the ids of the answer."""
        times, answer, timings = [], [], {}
        for seconds, said in self.events("/completion", {
                "prompt": ids, "n_predict": new, "stream": True, "cache_prompt": True,
                "ignore_eos": True, "return_tokens": True, "samplers": ["top_k"], "top_k": 1}):
            times.append(1e3 * seconds)
            answer += said.get("tokens", [])
            timings = said.get("timings", timings)
        return {"http_ms": times[0], "end_ms": times[-1], "prompt_ms": timings["prompt_ms"],
                "computed": timings["prompt_n"], "reused": len(ids) - timings["prompt_n"],
                "ids": answer}


class GqacServer(Server):
    """gqac serve with prefixes in memory."""

    name = "gqac serve"
    program = engines.ROOT / "build" / "release" / "gqac"
    maker = "./dev build"

    sampling = {"temperature": 0}  # fields of each request

    def __init__(self, model, threads, slots, length, *flags):
        super().__init__(["serve", model, "--threads", threads, "--parallel", slots, "--context",
                          length, "-q", *flags], threads)
        said = subprocess.run([self.program, "version", "--format", "json"], capture_output=True,
                              check=True)
        facts = json.loads(said.stdout)
        self.version, self.level = facts["version"], facts["level"]

    def metrics(self):
        """The values of /metrics that have no labels, by name."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        self.go_on()
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        self.stop()
        return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}

    def ask(self, ids, new):
        """One request: times in ms to the first id and to the end, and the ids of the answer."""
        times, answer, reused = [], [], 0
        for seconds, said in self.events("/v1/completions", {
                "prompt": ids, "max_tokens": new, "stream": True, **self.sampling,
                "ignore_eos": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}):
            times.append(1e3 * seconds)
            for choice in said["choices"]:
                answer += choice.get("token_ids") or []
            if said.get("usage"):
                reused = said["usage"]["prompt_tokens_details"]["cached_tokens"]
        return {"http_ms": times[0], "end_ms": times[-1], "reused": reused,
                "computed": len(ids) - reused, "ids": answer}
