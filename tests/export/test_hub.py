"""Names on the Hugging Face hub, with and without a connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from export.__main__ import main
from export.requirements import absence
from training.__main__ import main as train
from training.evaluation.command_line import main as evaluate

NAME = "someone/some-model"


def turn_to(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> str:
    """A hub at a port where nothing listens."""
    endpoint = "http://127.0.0.1:9"
    turn_to(endpoint, monkeypatch)
    return endpoint


class Hub(BaseHTTPRequestHandler):
    """Has no model, and keeps count of the requests."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    handler = type("OneHub", (Hub,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        turn_to(f"http://127.0.0.1:{server.server_port}", monkeypatch)
        yield handler
        server.shutdown()


def test_each_command_asks_an_unreachable_hub_once(
    unreachable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Libraries would ask for each of several files six times, for minutes."""
    monkeypatch.chdir(tmp_path)
    texts = [{"text": f"Sentence {number} is here. Another {number}."} for number in range(40)]
    Path("docs.jsonl").write_text("\n".join(map(json.dumps, texts)))
    run = ["--data.path", "docs.jsonl", "--run.output", "run"]
    evaluation = ["--data", "docs.jsonl", "--out", "report", "--no-controls", "--tasks", "halves"]
    for command, status in (
        (lambda: main([NAME, "bundle", "--licence", "MIT"]), 1),
        (lambda: train([*run, "--backbone.path", NAME]), 1),
        (lambda: train(["average", NAME, "other", "--output", "mean"]), 1),
        (lambda: train(["whiten", NAME, "docs.jsonl", "--output", "map"]), 1),
        (lambda: evaluate([NAME, *evaluation]), 1),
    ):
        assert command() == status
        said = " ".join(capsys.readouterr().err.split())
        assert f"no such folder, and {unreachable} cannot be reached to look for a model" in said
        assert "Retrying" not in said


def test_the_hubs_answer_is_left_to_the_libraries(hub: type[Hub]) -> None:
    assert absence(NAME) is None
    assert hub.asked == [f"/{NAME}/resolve/main/config.json"]


def test_a_folder_a_file_and_a_downloaded_model_need_no_hub(
    hub: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--someone--some-model").mkdir()
    assert absence(NAME) is None
    assert absence(str(tmp_path)) is None
    (tmp_path / "file").write_text("")
    assert absence(str(tmp_path / "file")) == "a file; give the folder of an encoder"
    (tmp_path / "bundle.json").write_text("{}")
    assert absence(str(tmp_path)) == "a bundle; give the encoder that it was made from"
    assert absence("./absent") == "no such folder"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert absence("other") is None
    assert hub.asked == []
