"""Start each server and write requests for its embedding route."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.peers import environments
from benchmarks.rig import server
from benchmarks.rig.start_bundle import BUNDLE

PEERS = ("infinity-torch", "infinity-onnx", "plain")
# no downloads and no telemetry during the measurement
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
MODEL = "all-MiniLM-L6-v2"


@dataclass
class Side:
    """A running server under measurement.

    Attributes:
        body: makes the request for some texts.
        window: maximum tokens of a document that it embeds; None embeds all.
        keeps: whether it caches embeddings.
        deadline_header: name of the header for a request's deadline in seconds.
    """

    name: str
    service: server.Service
    path: str
    body: Callable[[Sequence[str]], dict[str, Any]]
    window: int | None = None
    keeps: bool = False
    deadline_header: str | None = None

    @property
    def url(self) -> str:
        """Address of the embedding route."""
        return self.service.url + self.path

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let the process run in this context. Otherwise it is stopped and computes nothing."""
        self.service.send(signal.SIGCONT)
        try:
            yield
        finally:
            self.service.send(signal.SIGSTOP)


@contextmanager
def docsplit(folder: Path, keeps: bool, flags: Sequence[str] = ()) -> Iterator[Side]:
    """This service with the peers' weights, with or without its cache."""
    name = "docsplit with cache" if keeps else "docsplit"
    cache = () if keeps else ("--cache-bytes=0",)
    index = f"--index-path={folder / name.replace(' ', '-')}"
    bundle = f"--bundle={BUNDLE}"
    with server.started(index, bundle, "--request-timeout=590", *cache, *flags) as service:
        yield Side(
            name,
            service,
            "/embed",
            lambda texts: {"inputs": list(texts)},
            keeps=keeps,
            deadline_header="x-request-timeout",
        )


@contextmanager
def peer(name: str) -> Iterator[Side]:
    """One of ``PEERS``.

    Raises:
        PeerError: the peer cannot be installed or started.
    """
    start = _plain if name == "plain" else _infinity
    command, folder = start(name)
    log = environments.CACHE / f"{name}.log"
    try:
        with server.launched(command, "/health", cwd=folder, env=QUIET, patience=300) as service:
            if name == "plain":
                side = Side(name, service, "/embed", lambda texts: {"texts": list(texts)})
            else:
                side = Side(
                    name,
                    service,
                    "/embeddings",
                    lambda texts: {"model": MODEL, "input": list(texts)},
                )
            side.window = environments.WINDOW
            yield side
    except server.StartError as error:
        log.write_text(str(error), encoding="utf-8")
        last = (str(error).strip() or "no message").splitlines()[-1]
        raise environments.PeerError(f"does not start: {last} (full log: {log})") from error


def _plain(name: str) -> tuple[list[str], Path]:
    programs = environments.environment("plain")
    script = environments.HERE / "plain_server.py"
    folder = environments.weights()
    return [str(programs / "python"), str(script), str(folder), "{port}"], folder


def _infinity(name: str) -> tuple[list[str], Path]:
    programs = environments.environment("infinity")
    engine = {"infinity-torch": "torch", "infinity-onnx": "optimum"}[name]
    onnx = engine == "optimum"
    folder = environments.onnx_weights(programs) if onnx else environments.weights()
    # optimum finds the graph of a local folder only if it is the working directory
    command = [str(programs / "infinity_emb"), "v2", "--model-id", "."]
    command += ["--served-model-name", MODEL, "--engine", engine, "--device", "cpu"]
    # auto would pool by the first token if there is an ONNX graph
    command += ["--pooling-method", "mean", "--no-model-warmup", "--log-level", "warning"]
    return [*command, "--host", "127.0.0.1", "--port", "{port}"], folder
