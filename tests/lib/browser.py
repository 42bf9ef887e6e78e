"""Chromium without a window, driven over a pair of pipes: it opens a page, runs what it is told there,
and takes pictures. Everything that the page logs or throws is kept."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

from lib import http1


def program():
    """Debian's, or what others call it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    raise AssertionError("Chromium is not installed: tools/bootstrap test")


class Browser:
    """One page. `folder` is a new folder of the test's own, for the profile; `flags` are more of
    Chromium's."""

    def __init__(self, folder, size=(1320, 1000), dark=False, flags=()):
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()
        ends = {3: to_child, 4: from_child}

        def place():
            # Aside first: one of them may be 3 or 4 already.
            aside = {number: os.dup(end) for number, end in ends.items()}
            for number, end in aside.items():
                os.dup2(end, number)

        # Each process of it would map gigabytes that a limit for tests may not grant; and a container
        # has neither a session bus nor a namespace for its sandbox.
        self.process = subprocess.Popen(
            [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--disable-sync",
             "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}",
             "--remote-debugging-pipe", *flags, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=place, close_fds=False)
        os.close(to_child)
        os.close(from_child)
        self.number, self.pending, self.said = 0, b"", []
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Page.enable")
        self.ask("Network.enable")
        self.ask("Log.enable")
        self.size(*size)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)

    def receive(self):
        end = time.monotonic() + http1.PATIENCE
        while b"\0" not in self.pending:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.read_end], [], [], left)[0], "Chromium is silent"
            data = os.read(self.read_end, 1 << 20)
            assert data, "Chromium has ended"
            self.pending += data
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        """One command. Returns: its result; what comes in between is kept in `said`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.said.append(answer)

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)

    def open(self, url):
        """Until its elements are there; its scripts may still be waiting for answers."""
        self.ask("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState !== 'loading'")

    def run(self, script):
        """The value of an expression, on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script):
        """Until the expression is true."""
        end = time.monotonic() + http1.PATIENCE
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}\n{self.complaints()}"
            time.sleep(0.05)
        return value

    def picture(self, path):
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """Exceptions, errors on the console, refused loads."""
        return [event for event in self.said if
                event.get("method") in ("Runtime.exceptionThrown", "Network.loadingFailed") or
                (event.get("method") == "Log.entryAdded" and
                 event["params"]["entry"]["level"] == "error") or
                (event.get("method") == "Runtime.consoleAPICalled" and
                 event["params"]["type"] == "error")]

    def asked_for(self):
        """The addresses that the page has asked for."""
        return [event["params"]["request"]["url"] for event in self.said
                if event.get("method") == "Network.requestWillBeSent"]
