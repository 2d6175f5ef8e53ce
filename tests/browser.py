"""A file in, what a browser makes of it out: Chromium or a relative without a window, spoken to through a pipe.

`PULLBACK_BROWSER` names the program if it is not found by itself. Messages are JSON that ends with a zero byte.
"""

import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = ("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


def program():
    """Where a browser is; None if there is none."""
    found = [os.environ.get("PULLBACK_BROWSER"), *map(shutil.which, NAMES)]
    return next((path for path in found if path), None)


class Browser:
    """A browser that shows one page; `evaluate` asks it, `events` is what it told meanwhile."""

    def __init__(self, path, folder, seconds=60.0):
        self.until = time.monotonic() + seconds
        self.number, self.held, self.events, self.session = 0, b"", [], {}
        theirs_in, self.to = self._far_pipe()
        self.back, theirs_out = self._far_pipe()

        def hand_over():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        command = [path, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=hand_over, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)

    @staticmethod
    def _far_pipe():
        """A pipe whose ends are out of the way of 3 and 4."""
        import fcntl  # Windows has none

        ends = os.pipe()
        far = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
        for end in ends:
            os.close(end)
        return far

    def __enter__(self):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **self.session}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self.held:
            ready, _, _ = select.select([self.back], [], [], max(self.until - time.monotonic(), 0.0))
            assert ready, "the browser does not answer"
            more = os.read(self.back, 1 << 16)
            assert more, "the browser has ended"
            self.held += more
        text, _, self.held = self.held.partition(b"\0")
        return json.loads(text)

    def show(self, file):
        self.send("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression):
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def told(self, *methods):
        return [event["params"] for event in self.events if event.get("method") in methods]
