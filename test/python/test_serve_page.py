#!/usr/bin/env python3
"""The page of gqac serve: it is served, loads nothing from elsewhere, and works in a browser.
Screenshots are written to build/page.

    python test/python/test_serve_page.py
"""

import base64
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness
from harness import Case
from serving import SLOW, Server, absent

PICTURES = harness.ROOT / "build" / "page"
# Defects in the look of the page: texts with too little contrast to their background (WCAG 2.2: 4.5
# to 1), and elements that are wider than the window or their parent.
WRONG = """(() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => rgb.slice(0, 3).map(c => c / 255).map(
    c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
  ).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    const color = channels(getComputedStyle(e).backgroundColor);
    return color.length < 4 || color[3] === 1 ? color : color[3] === 0 ? behind(e.parentElement) :
      [NaN, NaN, NaN];
  };
  const wrong = [];
  for (const e of document.querySelectorAll("body, body *:not(script)")) {
    if (!e.checkVisibility() || e.closest(".hidden")) continue;
    const name = e.tagName + (e.id && "#" + e.id) + (e.className && "." + e.className);
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.value;
    const pair = [channels(getComputedStyle(e).color), behind(e)].map(light).sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (own && !e.disabled && !(ratio >= 4.5)) wrong.push(`${name}: contrast ${ratio.toFixed(2)}`);
    const box = e.getBoundingClientRect();
    if (box.left < 0 || box.right > innerWidth) wrong.push(`${name}: ${box.left} to ${box.right}`);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth && e.tagName !== "INPUT")
      wrong.push(`${name}: ${e.scrollWidth} in ${e.clientWidth}`);
  }
  return wrong;
})()"""


class Browser:
    """A headless chromium with one page, controlled with the DevTools protocol over pipes."""

    def __init__(self, width=900, height=700, dark=False):
        if not shutil.which("chromium"):
            raise AssertionError("chromium is not installed: ./dev test --full does that")
        self.folder = tempfile.TemporaryDirectory(prefix="gqac-chromium-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()  # commands to it, and its output

        def become_3_and_4():
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 5) for end in (ours[0], theirs[1])]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)
        self.child = subprocess.Popen(
            ["chromium", "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
             f"--user-data-dir={self.folder.name}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=become_3_and_4)
        os.close(ours[0])
        os.close(theirs[1])
        self.commands, self.said = os.fdopen(ours[1], "wb"), os.fdopen(theirs[0], "rb")
        self.last, self.session, self.events = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, **params):
        """The result of a command; events that arrive before it are stored."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            text = b""
            while not text.endswith(b"\0"):
                byte = self.said.read(1)
                if not byte:
                    raise AssertionError("the browser has ended")
                text += byte
            answer = json.loads(text[:-1])
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script, seconds=20):
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds * SLOW
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {script}\n{self.run('document.body.innerText')}")
            time.sleep(0.02)
        return value

    def key(self, name, code, text="", modifiers=0):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code,
                      modifiers=modifiers, **({"text": text} if kind == "keyDown" and text else {}))

    def type(self, text):
        """Insert text at the focus."""
        self.call("Input.insertText", text=text)

    def draw(self, name):
        """Write a screenshot to a file in PICTURES."""
        PICTURES.mkdir(exist_ok=True)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(data))

    def wrong(self):
        """Messages on the console: violations of the policy, errors, exceptions."""
        self.run("1")
        return [e["params"] for e in self.events if e["method"] in (
            "Runtime.exceptionThrown", "Log.entryAdded")]

    def requests(self):
        """Requested addresses."""
        return [e["params"]["request"]["url"] for e in self.events
                if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        """End it."""
        try:
            self.session = None
            self.call("Browser.close")
        except (AssertionError, OSError):
            pass
        self.child.wait(20)
        self.commands.close()
        self.said.close()
        self.folder.cleanup()


class Served(Case):
    """What a client receives."""

    def test_head(self):
        """The page has its type and a policy that allows only the page itself, with a nonce for
        each reply."""
        nonces = []
        with Server("--api-key-file", self.keys()) as server:
            for method in ("GET", "GET", "HEAD"):
                asked = urllib.request.Request(server.url + "/", method=method)
                with urllib.request.urlopen(asked) as reply:
                    text = reply.read().decode()
                    self.assertEqual(reply.headers["Content-Type"], "text/html; charset=utf-8")
                    self.assertEqual(reply.headers["X-Content-Type-Options"], "nosniff")
                    policy = reply.headers["Content-Security-Policy"]
                rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
                nonce = re.fullmatch(r"'nonce-([0-9a-f]{32})'", rules["script-src"])[1]
                self.assertEqual(rules, {
                    "default-src": "'none'", "script-src": f"'nonce-{nonce}'",
                    "style-src": f"'nonce-{nonce}'", "img-src": "data:", "connect-src": "'self'",
                    "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"})
                self.assertEqual(text.count(f'nonce="{nonce}"'), 2 if method == "GET" else 0)
                nonces.append(nonce)
            self.assertEqual(server.request("/", {})[0], 405)
        self.assertEqual(len(set(nonces)), 3)

    def keys(self):
        """With a file of keys, the page needs none."""
        path = self.dir / "keys"
        path.write_text("secret\n")
        return path

    def test_alone(self):
        """The file contains no other address, and has labels for all controls."""
        text = (harness.ROOT / "src" / "serve" / "page.html").read_text()
        self.assertEqual(re.findall(r"[a-z]+://|//[a-z]|@import|url\(", text), [])
        for name in re.findall(r"(?:src|href)=\"([^\"]*)\"", text):
            self.assertEqual(name, "data:,")
        self.assertEqual(re.findall(r"\son[a-z]+=|style=", text), [])  # the policy forbids them
        self.assertIn('<html lang="en">', text)
        body = text[text.index("<form"):text.index("</form>")]
        for field in re.findall(r"<(?:input|textarea)[^>]*id=\"(\w+)\"", body):
            before = body[:body.index(f'id="{field}"')]
            self.assertGreater(before.rfind("<label"), before.rfind("</label>"), field)


@harness.unittest.skipUnless(harness.FULL, "long tier: needs a browser")
class InBrowser(Case):
    """A conversation with the keyboard."""

    def open(self, *args, look=None, **more):
        """The page of a server with these flags, in a browser with this appearance."""
        self.server = Server("--threads", 2, *args, **more)
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))
        self.page = Browser(**(look or {}))
        self.addCleanup(self.page.close)
        self.page.call("Page.navigate", url=self.server.url + "/")
        self.page.wait("document.title.startsWith('tiny-gqa')")

    def answers(self):
        """The texts of the conversation."""
        return self.page.run("[...document.querySelectorAll('#talk .text')].map(x => x.textContent)")

    def say(self, text):
        """Type a message, press Enter, wait for the whole answer; returns the note about it."""
        self.page.wait("document.activeElement === $('message')")
        n = len(self.answers()) // 2
        self.page.type(text)
        self.page.key("Enter", 13, "\r")
        self.page.wait(f"document.querySelectorAll('.assistant').length === {n + 1} && !running && "
                       "!!document.querySelector('.assistant:last-child .bar')")
        return self.page.run("document.querySelector('.assistant:last-child .about').textContent")

    def test_chat(self):
        """Streamed answers equal those of the API; reused tokens are shown; the proof finds
        equality."""
        self.open()
        self.page.run("$('most').value = 24")
        first = self.say("How do you do?")
        self.assertRegex(first, r"^Prompt: \d+ tokens, \d reused\. Answer: 24 tokens(, [\d.]+ "
                                r"tokens/s)?, cut at the limit\.$")
        second = self.say("And Emma?")
        prompt, reused = map(int, re.match(r"Prompt: (\d+) tokens, (\d+) reused", second).groups())
        self.assertGreater(reused, prompt // 2)
        texts = self.answers()
        messages = [{"role": role, "content": text} for role, text in
                    zip(("user", "assistant", "user"), texts)]
        for at in (1, 3):
            want = self.server.good("/v1/chat/completions", {
                "messages": messages[:at], "max_tokens": 24, "temperature": 0})
            self.assertEqual(texts[at], want["choices"][0]["message"]["content"])
        self.page.run("document.querySelector('.assistant:last-child button').focus()")
        self.page.key("Enter", 13, "\r")
        proof = self.page.wait("(document.querySelector('.good, .bad') || {}).textContent")
        self.assertRegex(proof, r"^Equal: all 24 tokens, and all bits of their logits, with \d+ reused")
        self.page.wait("$('hits').textContent.endsWith('%')")
        self.assertRegex(self.page.run("$('memory').textContent"), r"^\d+(\.\d)? [KM]iB$")
        self.assertEqual(self.page.wrong(), [])
        self.assertEqual({url for url in self.page.requests()
                          if not url.startswith(self.server.url + "/")} - {"about:blank", "data:,"},
                         set())

    def test_broken(self):
        """If the cache changes bits (in a build that breaks the rule), the proof says so."""
        self.open(tool=harness.CONTROLS / "KERNEL_BY_ROWS")
        self.page.run("$('most').value = 24")
        self.say("How do you do?")
        self.say("And Emma?")
        self.page.run("document.querySelector('.assistant:last-child button').click()")
        proof = self.page.wait("(document.querySelector('.good, .bad') || {}).textContent")
        self.assertRegex(proof, "^Different: ")

    def test_edit(self):
        """An edited message is sent again, and the later ones are removed."""
        self.open()
        self.page.run("$('most').value = 12")
        self.say("How do you do?")
        self.say("And Emma?")
        self.page.run("document.querySelectorAll('.user button')[1].focus()")
        self.page.key("Enter", 13, "\r")
        self.page.wait("document.activeElement.getAttribute('aria-label') === 'Edit the message'")
        self.page.run("document.activeElement.select()")
        self.page.type("And Jane?")
        self.page.key("Enter", 13, "\r")
        self.page.wait("document.querySelectorAll('.bar').length === 2 && !running")
        texts = self.answers()
        self.assertEqual((len(texts), texts[2]), (4, "And Jane?"))
        about = self.page.run("document.querySelector('.assistant:last-child .about').textContent")
        self.assertGreater(int(re.search(r"(\d+) reused", about)[1]), 10)

    def test_look(self):
        """Light and dark, wide and narrow: every text is readable, and nothing is cut off."""
        for dark in (False, True):
            for width, height in ((900, 700), (380, 760)):
                with self.subTest(dark=dark, width=width):
                    self.open(look={"width": width, "height": height, "dark": dark})
                    self.look(f"{'dark' if dark else 'light'}-{width}")
                    self.doCleanups()

    def look(self, name):
        """The states of the page, with a screenshot of each."""
        def see(state):
            self.page.draw(f"{name}-{state}")
            self.assertEqual(self.page.run(WRONG), [], state)
        see("empty")
        self.page.run("$('most').value = 90")
        self.say("How do you do, Mr. Darcy? " + "w" * 120)
        self.say("And Emma?")
        self.page.run("document.querySelector('.assistant:last-child button').click()")
        self.page.wait("!!document.querySelector('.good')")
        see("talk")
        self.page.run("$('settings').open = true; $('settings').scrollIntoView()")
        see("settings")
        self.page.run("$('settings').open = false; document.querySelector('.user button').click()")
        see("edit")
        self.page.run("document.querySelectorAll('.user .acts button')[1].click()")
        self.page.run("$('message').value = 'word '.repeat(2000); $('form').requestSubmit()")
        self.page.wait("$('alert').textContent.includes('shorten the prompt')")
        see("error")

    def test_stop(self):
        """Escape stops an answer: its text is kept, and the server ends the work."""
        self.open("--target", "ref")
        self.page.run("$('most').value = 1100")
        self.page.wait("document.activeElement === $('message')")
        self.page.type("Go on")
        self.page.key("Enter", 13, "\r")
        self.page.wait("(document.querySelector('.assistant .text') || {textContent: ''})"
                       ".textContent.length > 10")
        self.page.key("Escape", 27)
        self.page.wait("!running")
        self.assertEqual(self.page.run("document.querySelector('.assistant .about').textContent"),
                         "Stopped.")
        self.assertGreater(len(self.answers()[1]), 10)
        self.server.await_metric("gqac_requests_running", 0)
        self.assertEqual(self.page.run("$('send').disabled"), False)

    def test_error(self):
        """A refusal of the server is shown, and the message can be sent again."""
        self.open()
        self.page.run("$('message').value = 'word '.repeat(2000)")
        self.page.key("Enter", 13, "\r")
        self.page.wait("$('alert').textContent.includes('shorten the prompt')")
        self.assertTrue(self.page.run("$('message').value.startsWith('word')"))
        self.assertEqual(self.answers(), [])


if __name__ == "__main__":
    if absent():
        print("this gqac was built without the server")
        sys.exit(77)
    sys.exit(harness.main())
