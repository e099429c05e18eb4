"""How each server is started and what its embedding route wants."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.overhead import BUNDLE
from benchmarks.comparison.peers import environments
from benchmarks.rig import server

PEERS = ("infinity-torch", "infinity-onnx", "plain")
# nothing is fetched and nothing is sent while measuring
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
MODEL = "all-MiniLM-L6-v2"


@dataclass
class Side:
    """A running server under measurement.

    Attributes:
        body: the request for some texts.
        window: tokens of a document that it embeds, at most; None embeds all.
        keeps: whether it remembers what it embedded.
        deadline_header: of a request that has a deadline; its value is in seconds.
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
        """Let the process run; outside of this it is stopped and computes nothing."""
        self.service.send(signal.SIGCONT)
        try:
            yield
        finally:
            self.service.send(signal.SIGSTOP)


@contextmanager
def docsplit(folder: Path, keeps: bool, flags: Sequence[str] = ()) -> Iterator[Side]:
    """This service on the peers' weights, with its cache or without."""
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
        PeerError: it cannot be installed or started.
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
        raise environments.PeerError(f"does not start: {last} (all of it: {log})") from error


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
    # auto takes the first token's vector where there is an ONNX graph
    command += ["--pooling-method", "mean", "--no-model-warmup", "--log-level", "warning"]
    return [*command, "--host", "127.0.0.1", "--port", "{port}"], folder
