# SPDX-License-Identifier: Apache-2.0
"""In a real browser: our own page works, and pages of strangers get nothing out of the process,
whether they come from another site, another port of this machine, or a name that was pointed here
(DNS rebinding).

The browser is Chromium without a window, told what to do over a pipe (its DevTools protocol).
"""
import http.server
import itertools
import json
import os
import select
import shutil
import subprocess
import threading

import pytest

from wire import open_door
from world import wait_for

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SPIN = "def spin():\n    while True: sum(range(1000))\nprint('ready')\nspin()\n"
EVIL = "evil.example"  # in this browser, a name of this machine


class Browser:
    def __init__(self, program, profile):
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--user-data-dir=%s" % profile,
                 "--host-resolver-rules=MAP %s 127.0.0.1" % EVIL, "--remote-debugging-pipe"]
        shell = 'exec "$@" 3<&%d 4>&%d' % (out_read, in_write)  # where it looks for the pipe
        self.process = subprocess.Popen(["bash", "-c", shell, "bash"] + words,
                                        pass_fds=(out_read, in_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(out_read)
        os.close(in_write)
        self.to, self.source = out_write, in_read
        self.buffer, self.numbers = b"", itertools.count(1)

    def call(self, method, session=None, **params):
        number = next(self.numbers)
        message = dict(id=number, method=method, params=params)
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                assert select.select([self.source], [], [], 60)[0], method + ": no answer"
                data = os.read(self.source, 1 << 16)
                assert data, "the browser has gone"
                self.buffer += data
            one, _, self.buffer = self.buffer.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def open(self, url):
        return Tab(self, url)

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)


class Tab:
    def __init__(self, browser, url):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        browser.call("Page.navigate", self.session, url=url)
        wait_for(lambda: self.run("location.href != 'about:blank' && document.readyState == "
                                  "'complete'"), url)

    def run(self, code):
        """The value of this code, awaited; what it throws is given as text."""
        answer = self.browser.call("Runtime.evaluate", self.session, expression=code,
                                   awaitPromise=True, returnByValue=True)
        return answer["result"].get("value", answer["result"].get("description"))

    def text(self):
        return self.run("document.documentElement.innerText")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not program:
        pytest.skip("no browser (Debian: chromium-headless-shell)")
    browser = Browser(program, tmp_path_factory.mktemp("browser"))
    try:
        yield browser
    finally:
        browser.end()


@pytest.fixture(scope="module")
def stranger():
    """A web server of somebody else; its port."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>stranger</title>")

        def log_message(self, *args):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def door(world):
    return open_door(world, source=SPIN)


def visit(browser, door, path="/"):
    """As the owner does, with the URL that inject prints: then this browser has the cookie."""
    return browser.open("http://127.0.0.1:%d%s?token=%s" % (door.port, path, door.token))


ASK = ("fetch('%s/query?q=select+4711', {credentials: 'include'})"
       ".then(r => r.text(), e => 'no: ' + e)")


def test_our_own_page_works(browser, door):
    tab = visit(browser, door)
    assert tab.run("location.search") == ""  # the token has left the address
    wait_for(lambda: "pid: %d" % door.target.pid in tab.text(), "what this process is")
    assert "4711" in tab.run(ASK % "")
    assert tab.run("document.cookie") == ""  # no script reads it


# Tries of a page; each gives "open" when it got in.
ATTACKS = {
    "read": "fetch('%(here)s/query?q=select+1', {credentials: 'include'})"
            ".then(r => 'open ' + r.status, e => 'no')",
    "write": "fetch('%(here)s/eval', {method: 'POST', credentials: 'include', mode: 'no-cors', "
             "body: \"open('%(mark)s', 'w')\"}).then(r => 'sent', e => 'no')",
    "run": "fetch('%(here)s/run', {method: 'POST', credentials: 'include', mode: 'no-cors', "
           "body: '{\"run\":[\"eject\"]}'}).then(r => 'sent', e => 'no')",
    "form": "new Promise(done => { const f = document.createElement('form'), i = "
            "document.createElement('iframe'); i.name = 'x'; f.target = 'x'; f.method = 'POST'; "
            "f.action = '%(here)s/eval'; f.enctype = 'text/plain'; i.onload = () => done('sent'); "
            "const v = document.createElement('input'); v.name = \"open('%(mark)s', 'w') #\"; "
            "f.append(v); document.body.append(i, f); f.submit(); setTimeout(done, 3000, 'no') })",
    "websocket": "new Promise(done => { const w = new WebSocket('%(ws)s/ws', 'probing.1'); "
                 "w.onopen = () => done('open'); w.onerror = () => done('no') })",
    "script": "new Promise(done => { const s = document.createElement('script'); "
              "s.src = '%(here)s/query?q=select+1'; s.onload = () => done('open'); "
              "s.onerror = () => done('no'); document.head.append(s) })",
    "frame": "new Promise(done => { const i = document.createElement('iframe'); "
             "i.src = '%(here)s/'; i.onload = () => { let seen = 'no'; try { "
             "seen = i.contentDocument.body.innerText ? 'open' : 'no' } catch (e) {} done(seen) }; "
             "document.body.append(i) })",
}


@pytest.mark.parametrize("site", ["127.0.0.1", "localhost", EVIL])
def test_pages_of_strangers_get_nothing(browser, door, stranger, site):
    assert "4711" in visit(browser, door).run(ASK % "")
    tab = browser.open("http://%s:%d/" % (site, stranger))
    assert tab.run("document.title") == "stranger"
    mark = door.world.tmp / "mark"
    names = {"here": "http://127.0.0.1:%d" % door.port, "ws": "ws://127.0.0.1:%d" % door.port,
             "mark": mark}
    for name, attack in ATTACKS.items():
        got = tab.run(attack % names)
        assert isinstance(got, str) and not got.startswith("open"), (name, got)
    assert door.target.rows("select 1") == [[1]]  # it is still there: nobody has made us leave
    assert not mark.exists()


def test_a_name_that_was_pointed_here_is_not_us(browser, door):
    """DNS rebinding: to the browser this is the stranger's own site."""
    visit(browser, door)
    for path in ("/", "/?token=" + door.token):
        tab = browser.open("http://%s:%d%s" % (EVIL, door.port, path))
        assert "EACCES" in tab.text() or "403" in tab.text(), tab.text()
        assert "4711" not in tab.run(ASK % "")
        assert tab.run(ATTACKS["websocket"] % {"ws": "ws://%s:%d" % (EVIL, door.port)}) == "no"


def test_a_flame_graph_is_drawn_and_can_do_nothing_else(browser, door):
    assert door.target.probing("plugin", "load", "profile").returncode == 0
    wait_for(lambda: door.target.rows("select count(*) from python.samples")[0][0] > 5, "samples")
    visit(browser, door)
    for kind in ("html", "svg"):
        tab = browser.open("http://127.0.0.1:%d/flamegraph?mode=wall&format=%s" % (door.port, kind))
        if kind == "html":
            assert "(%d): " % door.target.pid in tab.run("document.title")
            assert tab.run("document.getElementById('graph').height") > 20  # its script ran
        else:
            assert "(%d): " % door.target.pid in tab.run("document.documentElement.textContent")
        assert tab.run(ASK % ("http://127.0.0.1:%d" % door.port)).startswith("no:")
        assert "4711" not in str(tab.run(ASK % ""))
