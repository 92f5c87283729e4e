"""llama.cpp's server as an engine: started with a model, asked over HTTP on this machine.

Prompts are sent as token ids, so that nothing is tokenized; every id of the answer is a line of its
own (server-sent events). The server is stopped (SIGSTOP) while another engine runs.
"""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time

import engines

SERVER = engines.ROOT / "build" / "peers" / "llama-build" / "bin" / "llama-server"
TIMEOUT = 300  # seconds, of one request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running llama-server with `slots` sequences of at most `length` tokens each."""

    def __init__(self, model, threads, slots, length):
        if not SERVER.exists():
            raise engines.Absent("llama-server: not built; see ./dev bench --peers")
        self.port = free_port()
        command = [SERVER, "-m", model, "--host", "127.0.0.1", "--port", self.port, "-t", threads,
                   "-tb", threads, "-np", slots, "-c", slots * length, "--no-webui"]
        self.child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL,
                                      preexec_fn=engines.pinned(threads))
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        version = subprocess.run([SERVER, "--version"], capture_output=True, text=True)
        self.version = (version.stdout + version.stderr).strip().split("\n")[0]
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
        raise engines.Absent("llama-server: it did not start")

    def stop(self):
        self.child.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.child.send_signal(signal.SIGCONT)

    def close(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.kill()
        self.child.wait()

    def ask(self, ids, new, cached=True):
        """One request. Times in ms: to the first id (http), to the end, and of the prompt as the
        server itself has measured it, HTTP and waiting left out; and the ids of the answer."""
        body = json.dumps({"prompt": ids, "n_predict": new, "stream": True, "cache_prompt": cached,
                           "ignore_eos": True, "return_tokens": True, "samplers": ["top_k"],
                           "top_k": 1})
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        began, first, answer, timings = time.perf_counter(), None, [], {}
        c.request("POST", "/completion", body, {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status != 200:
            raise engines.Absent(f"llama-server: {response.read()[:200]}")
        for line in response:
            if not line.startswith(b"data: "):
                continue
            first = first or time.perf_counter()
            said = json.loads(line[len(b"data: "):])
            answer += said.get("tokens", [])
            timings = said.get("timings", timings)
        end = time.perf_counter()
        c.close()
        return {"http_ms": 1e3 * (first - began), "end_ms": 1e3 * (end - began),
                "prompt_ms": timings["prompt_ms"], "computed": timings["prompt_n"],
                "reused": len(ids) - timings["prompt_n"], "ids": answer}

    def serve(self, plan):
        """Sends what clients ask, a thread for each: a list of their answers, and the time of all
        in ms. plan: lists of (follows, new, ids) by client; see worker_load.c."""
        said, wrong = [[] for _ in plan], []

        def client(i):
            try:
                history = []
                for follows, new, ids in plan[i]:
                    prompt = history + ids if follows else ids
                    said[i].append(self.ask(prompt, new))
                    history = prompt + said[i][-1]["ids"]
            except (OSError, KeyError, TypeError, ValueError, engines.Absent) as error:
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
            raise engines.Absent(f"llama-server: {wrong[0]!r}")
        return [answer for answers in said for answer in answers], wall
