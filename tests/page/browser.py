"""A Chromium driven by the DevTools protocol: an installed one, or that of QtWebEngine."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QT = "PySide6.QtWebEngineWidgets"
_WINDOW = f"""
import sys
from PySide6.QtWidgets import QApplication
from {QT} import QWebEngineView
app = QApplication(sys.argv)
view = QWebEngineView()
view.resize(1280, 900)
view.setHtml("")
view.show()
app.exec()
"""


def command(folder: Path, port: int) -> tuple[list[str], dict[str, str]] | None:
    """The command of a browser and its environment; None if this machine has no Chromium."""
    for name in NAMES:
        if program := shutil.which(name):
            flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
            flags += [f"--user-data-dir={folder}", f"--remote-debugging-port={port}", "about:blank"]
            return [program, *flags], {}
    try:
        there = find_spec(QT) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        return None
    return [sys.executable, "-c", _WINDOW], {
        "QT_QPA_PLATFORM": "offscreen",
        "QTWEBENGINE_DISABLE_SANDBOX": "1",
        "QTWEBENGINE_REMOTE_DEBUGGING": f"127.0.0.1:{port}",
        "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu",
    }


class Tab:
    """The browser's tab.

    Args:
        socket: a connection to its DevTools.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self._opened = 0
        self.problems: list[str] = []
        """errors in the console and violations of the page's policy"""
        self.loaded: list[str] = []
        """addresses that the page requested"""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools method."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))

    def _note(self, event: str | None, said: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(said["exceptionDetails"])[:2000])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(said["args"])[:2000])
        elif event == "Log.entryAdded" and said["entry"]["level"] == "error":
            url = said["entry"].get("url", "")
            # a browser asks for it on answers that are no page
            if not url.endswith("/favicon.ico"):
                self.problems.append(f"{said['entry']['text']} {url}")
        elif event == "Network.requestWillBeSent":
            self.loaded.append(said["request"]["url"])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> Any:
        """The value of an expression once it is true; an element is true."""
        shown = f"(() => {{ const it = {script}; return it instanceof Node || it; }})()"
        until = time.monotonic() + seconds
        while not (value := self.run(shown)):
            assert time.monotonic() < until, f"never true: {script}\n{self.text('body')}"
            time.sleep(0.03)
        return value

    def open(self, url: str) -> None:
        """Load a page, even if only its fragment differs from the present one."""
        # Another query makes it another page. An empty page in between would end the process of
        # the tab, and a new one takes half a second to start.
        self._opened += 1
        place, mark, fragment = url.partition("#")
        query = f"?{self._opened}"
        self("Page.navigate", url=f"{place.partition('?')[0]}{query}{mark}{fragment}")
        self.wait(f"location.search === '{query}' && document.readyState === 'complete'")

    def text(self, selector: str) -> str:
        """The visible text of the first element that fits."""
        found = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def click(self, selector: str) -> None:
        """Click at the middle of the first element that fits, once nothing covers or moves it."""
        box = self.wait(
            f"""(async () => {{
              const found = document.querySelector({json.dumps(selector)});
              if (!found) return null;
              found.scrollIntoView({{block: "center", behavior: "instant"}});
              await new Promise((resolve) => setTimeout(resolve, 40));
              const box = found.getBoundingClientRect();
              const place = [box.x + box.width / 2, box.y + box.height / 2];
              await new Promise((resolve) => setTimeout(resolve, 20));
              return found.contains(document.elementFromPoint(...place)) && place;
            }})()"""
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        self("Input.dispatchMouseEvent", type="mousePressed", **at)
        self("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press one key, such as ``Enter`` or ``Tab``."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}.get(key, ord(key[0].upper()))
        text = {"Enter": "\r", "Tab": "", "Escape": ""}.get(key, key if len(key) == 1 else "")
        what = {"key": key, "windowsVirtualKeyCode": code}
        self("Input.dispatchKeyEvent", type="keyDown", text=text, **what)
        self("Input.dispatchKeyEvent", type="keyUp", **what)

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in the first file input that fits."""
        root = self("DOM.getDocument")["root"]["nodeId"]
        node = self("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def look(self, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the preferred colours."""
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browsing(folder: Path, port: int) -> Iterator[Tab]:
    """Start the browser that ``command`` finds, and end it afterwards."""
    found = command(folder, port)
    assert found is not None
    arguments, environment = found
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            arguments, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        with connect(_socket(process, port), max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait()


def _socket(process: subprocess.Popen[bytes], port: int) -> str:
    import httpx

    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            targets = httpx.get(f"http://127.0.0.1:{port}/json").json()
            for target in targets:
                if target["type"] == "page" and re.match("about:|data:", target["url"]):
                    return str(target["webSocketDebuggerUrl"])
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the browser does not start")
