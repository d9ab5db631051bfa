"""A page in headless Chromium, driven by the DevTools protocol over two pipes; no port, no library."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """with Browser(profile) as browser: browser.open(path); browser.evaluate("1 + 1"); browser.errors"""

    def __init__(self, profile):
        (child_in, self.writer), (self.reader, child_out) = os.pipe(), os.pipe()
        options = f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir={profile}"
        options += " --no-first-run --disable-background-networking --remote-debugging-pipe about:blank"
        # the protocol wants the pipes as 3 and 4, whatever their numbers here
        line = f'exec "{chromium()}" {options} 3<&{child_in} 4>&{child_out}'
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # bash: a plain sh need not know descriptors above 9
        self.process = subprocess.Popen(["bash", "-c", line], pass_fds=(child_in, child_out), **quiet)
        os.close(child_in), os.close(child_out)
        self.rest, self.number, self.errors, self.events = b"", 0, [], []
        target = self.call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait(30)
        os.close(self.writer), os.close(self.reader)

    def call(self, method, parameters=None, session="own", seconds=60):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session == "own":
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        return self._until(lambda answer: answer.get("id") == self.number, seconds).get("result", {})

    def _until(self, wanted, seconds=60):
        limit = time.monotonic() + seconds
        while True:
            while b"\0" not in self.rest:
                ready, _, _ = select.select([self.reader], [], [], max(limit - time.monotonic(), 0))
                assert ready, "chromium does not answer"
                part = os.read(self.reader, 1 << 20)
                assert part, "chromium has ended"
                self.rest += part
            line, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(line)
            assert "error" not in answer, answer
            self._note(answer)
            if wanted(answer):
                return answer

    def _note(self, answer):
        parameters = answer.get("params", {})
        if answer.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        if answer.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(parameters["args"])[:500])
        if answer.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])

    def open(self, path, fragment="", width=1280, height=900, dark=False, mobile=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.call("Page.navigate", {"url": "about:blank"})
        self._until(lambda answer: answer.get("method") == "Page.loadEventFired")
        self.call("Page.navigate", {"url": f"file://{path}{fragment}"})
        self._until(lambda answer: answer.get("method") == "Page.loadEventFired")

    def evaluate(self, expression):
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def screenshot(self, path, full=False):
        more = {"captureBeyondViewport": True} if full else {}
        if full:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", {"format": "png", **more})
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))
