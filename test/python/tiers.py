"""Servers in place of Redis, for the tests of --prefix-remote: one in memory, which can do
everything that a server must not do, a real one, and a proxy."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time


class Authority:
    """Creates certificates in a folder, and signs them."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.cert, self.key = self.make("ca", "-addext", "basicConstraints=critical,CA:TRUE")

    def make(self, name, *words, common=None):
        """(certificate, key): paths of two files."""
        cert, key = (self.folder / f"{self.name}-{name}.{kind}" for kind in ("crt", "key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        f"/CN={common or f'{self.name} {name}'}", "-keyout", key, "-out", cert, *words],
                       check=True, capture_output=True)
        return cert, key

    def issue(self, name, hosts="DNS:localhost,IP:127.0.0.1", common=None):
        """The same, signed, for some hosts; `common`: another common name."""
        return self.make(name, "-CA", self.cert, "-CAkey", self.key, "-addext",
                         f"subjectAltName={hosts}", common=common)

    def context(self, hosts="DNS:localhost,IP:127.0.0.1", asks=False, common=None):
        """A server's side of TLS, which may require a certificate of the client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server", hosts, common))
        if asks:
            context.load_verify_locations(self.cert)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Listener:
    """Accepts connections on a free port; each has a thread that runs `serve`. `tls`: a context."""

    tls = None

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.open, self.accepted = [], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Accepts until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                peer = self.socket.accept()[0]
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.open.append(peer)
                self.accepted += 1
                threading.Thread(target=self.run, args=(peer,), daemon=True).start()

    def run(self, peer):
        """Runs one connection."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, EOFError, ValueError):
            stack.enter_context(peer)
            if self.tls:
                peer = stack.enter_context(self.tls.wrap_socket(peer, server_side=True))
            self.serve(peer)

    def serve(self, peer):
        """The work of a connection."""
        raise NotImplementedError

    def drop(self):
        """Closes the open connections."""
        for peer in self.open:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        self.open = []

    def close(self):
        """Accepts no more connections."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.drop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Fake(Listener):
    """A server with a dictionary. `fault(command, reply)` returns what is sent in place of a reply:
    bytes, a list of bytes with a pause after each, or None for silence."""

    def __init__(self, tls=None):
        self.values, self.commands, self.fault = {}, [], lambda command, reply: reply
        self.once = False  # a connection ends after a GET or a SET
        self.tls = tls
        super().__init__()
        if tls:
            self.url = self.url.replace("redis", "rediss", 1)

    def answer(self, words):
        """The correct reply."""
        name, *rest = words
        if name == b"SET":
            self.values[rest[0]] = rest[1]
        if name in (b"SET", b"AUTH", b"SELECT"):
            return b"+OK\r\n"
        if name == b"STRLEN":
            return b":%d\r\n" % len(self.values.get(rest[0], b""))
        if name == b"DBSIZE":
            return b":%d\r\n" % len(self.values)
        text = self.values.get(rest[0]) if name == b"GET" else b"redis_version:0\r\nused_memory:5\r\n"
        return b"$-1\r\n" if text is None else b"$%d\r\n%s\r\n" % (len(text), text)

    def serve(self, peer):
        stream = peer.makefile("rb")
        while line := stream.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(stream.readline()[1:])
                words.append(stream.read(size + 2)[:-2])
            self.commands.append(words[0] if words[0] != b"AUTH" else b" ".join(words))
            reply = self.fault(words[0], self.answer(words))
            for part in [reply] if isinstance(reply, bytes) else reply or []:
                peer.sendall(part)
                if not isinstance(reply, bytes):
                    time.sleep(0.02)
            if self.once and words[0] in (b"GET", b"SET"):
                return


class Redis:
    """A process of redis-server. `tls`: its certificate, its key and the authority that it trusts;
    `login`: a user and a password, for the only user."""

    def __init__(self, *args, tls=None, login=None):
        self.folder = tempfile.TemporaryDirectory(prefix="gqac-redis-")
        self.args, self.child, self.port, self.tls, self.login = args, None, None, tls, login
        if login:
            self.args += ("--user", "default", "off", "--user", login[0], "on", f">{login[1]}",
                          "~*", "&*", "+@all")
        if not shutil.which("redis-server"):
            raise AssertionError("redis-server is not installed: ./dev test --full does that")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis{'s' * bool(tls)}://127.0.0.1:{self.port}/3"
        self.start()

    def start(self):
        """Starts it without data."""
        port = ["--port", str(self.port)]
        if self.tls:
            names = ("--tls-port", "--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file")
            values = (str(self.port), *map(str, self.tls))
            port = ["--port", "0", *(word for pair in zip(names, values) for word in pair)]
        self.child = subprocess.Popen(
            ["redis-server", *port, "--bind", "127.0.0.1", "--save", "", "--dir",
             self.folder.name, "--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru",
             *self.args], stdout=subprocess.DEVNULL)
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.01)
        raise AssertionError("redis-server does not listen")

    def kill(self):
        """kill -9."""
        self.child.kill()
        self.child.wait()

    def ask(self, *words):
        """The reply to a command, as printed by redis-cli."""
        more = []
        if self.tls:
            cert, key, trusted = map(str, self.tls)
            more = ["--tls", "--cert", cert, "--key", key, "--cacert", trusted]
        if self.login:
            more += ["--no-auth-warning", "--user", self.login[0], "--pass", self.login[1]]
        return subprocess.run(["redis-cli", "-p", str(self.port), "-n", "3", *more, *words],
                              capture_output=True, check=True, text=True).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.folder.cleanup()


class Proxy(Listener):
    """In front of a server: `change(reply)`, which may wait, returns what is sent in place of the
    bytes from the server."""

    def __init__(self, port):
        self.behind, self.change = port, lambda data: data
        super().__init__()

    def serve(self, peer):
        with socket.create_connection(("127.0.0.1", self.behind)) as server:
            threading.Thread(target=self.copy, args=(peer, server), daemon=True).start()
            while data := server.recv(1 << 16):
                peer.sendall(self.change(data))

    def copy(self, source, to):
        """Copies requests until the source ends."""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


class Swapping(Proxy):
    """A proxy that requests the same key whenever a value is requested."""

    def __init__(self, port):
        self.key = None
        super().__init__(port)

    def copy(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if data.startswith(b"*2\r\n$3\r\nGET"):
                    self.key = self.key or data
                    data = self.key
                to.sendall(data)
