"""``docsplit-export`` as a command."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE, load
from docsplit.bundles.manifest import WindowWeights
from export import int8, pipeline
from export.__main__ import main
from tests.conftest import NIGHTLY
from tests.export.held_out import write_judged


def test_help_is_quick_and_complete() -> None:
    code = (
        "import sys; from export.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: print(end.code)\n"
        "print(sorted({'torch', 'openvino', 'nncf', 'onnxruntime'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("0\n[]\n")
    for said in (
        "SOURCE",
        "DEST",
        "--max-tokens",
        "--calibration",
        "--retrieval",
        "--probe",
        "example:",
        "exit code",
    ):
        assert said in run.stdout


def test_a_wrong_pattern_is_refused_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["absent", "bundle", "--keep-float", "("])
    assert ended.value.code == 2
    assert "--keep-float: '(' is not a valid regular expression" in capsys.readouterr().err


def test_verify_asks_for_the_folder_of_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lineage has only its name, as every result of docsplit-train is called ``model``."""
    template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    assert main(["verify", str(DEFAULT_BUNDLE)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "its source is called 'docsplit-minilm-l6-v3'" in said
    assert said.endswith("give its folder with --source")


def test_a_bundle_from_the_command_line(
    shallow_folder: Path,
    text_file: Path,
    pep_texts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judged = write_judged(tmp_path / "claims", pep_texts, documents=30)
    dest = tmp_path / "bundle"
    arguments = [str(shallow_folder), str(dest), "--licence", "MIT", "--precision", "fp16"]
    options = [
        "--name",
        "mine",
        "--source-name",
        "tiny==1",
        "--paragraphs",
        "200",
        "--calibration",
        str(text_file),
    ]
    options += ["--retrieval", str(judged)]
    options += ["--window-weights", "letters", "--first-window-times", "2"]
    assert main([*arguments, *options, "--max-tokens", "32"]) == 0
    manifest = load(dest).manifest
    assert (manifest.name, manifest.lineage.source) == ("mine", "tiny==1")
    assert (manifest.licence, manifest.max_tokens) == ("MIT", 32)
    assert manifest.window_weights == WindowWeights(unit="letters", first=2)
    said = capsys.readouterr().err
    assert manifest.revision[:12] in said
    assert "windows of 32 tokens (--max-tokens)" in said.replace("\n", " ")
    assert "200 paragraphs" in said.replace("\n", " ")
    [loss] = manifest.precisions["fp16"].parity.tasks
    assert f"fp16: {loss}" in said.replace("\n", " ")
    assert main([*arguments, *options]) == 1
    assert "already exists" in capsys.readouterr().err
    arguments[1] = str(tmp_path / "other")
    assert main([*arguments, *options, "--probe", str(judged / "queries.jsonl")]) == 1
    assert "queries.jsonl:1: no column label" in capsys.readouterr().err
    assert not Path(arguments[1]).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b", "--licence", "MIT", "--documents", "0"],
        ["a", "b", "--licence", "MIT", "--paragraphs", "10"],
        ["a", "b", "--licence", "MIT", "--first-window-times", "0"],
        ["a", "b", "--licence", "MIT", "--first-window-times", "nan"],
        ["--precision", "fp8"],
        ["a", "b", "--licence", "MIT", "--threads", "0"],
    ],
)
def test_wrong_arguments_end_with_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: docsplit-export" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_folder(
    number: int,
    shallow_folder: Path,
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    place = tmp_path / "bundles"
    seen: list[int] = []

    def interrupted(*_: object) -> None:
        seen.append(len(list(place.iterdir())))
        # another thread could get a signal to the process, and this one would go on for a moment
        signal.raise_signal(number)

    monkeypatch.setattr(pipeline, "write_tokenizer", interrupted)
    # tests may run in the background of a shell, whose programs ignore SIGINT
    outer = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, outer))
    before = signal.getsignal(signal.SIGTERM)
    given = [str(shallow_folder), str(place / "mine"), "--calibration", str(text_file)]
    assert main([*given, "--licence", "MIT", "--max-tokens", "32", "--paragraphs", "200"]) == 130
    assert seen == [1]
    assert list(place.iterdir()) == []
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("room", [0, 60_000, 100_000])
def test_a_full_disk_ends_the_program_with_a_message_and_leaves_nothing(
    room: int,
    shallow_folder: Path,
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too little room for the tokenizer, for the fp32 graph, and for the int8 graph."""
    place = tmp_path / "bundles"
    given = [str(shallow_folder), str(place / "mine"), "--calibration", str(text_file)]
    given += ["--licence", "MIT", "--max-tokens", "32", "--paragraphs", "200"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    quantise = int8.quantise

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))

    def quantised(*arguments: Any, **options: Any) -> Any:
        fill()
        return quantise(*arguments, **options)

    # the fp32 graph is larger than the int8 graph
    if room == 100_000:
        given += ["--precision", "int8"]
        monkeypatch.setattr(int8, "quantise", quantised)
    else:
        fill()
    try:
        assert main(given) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"docsplit-export: {place / 'mine'}: not written: [Errno")
    assert said.endswith("; free space or correct the path, then repeat the command")
    assert list(place.iterdir()) == []


def test_a_place_that_cannot_be_written_ends_the_program_with_a_message(
    shallow_folder: Path, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    dest = tmp_path / "file" / "mine"
    given = [str(shallow_folder), str(dest), "--calibration", str(text_file), "--licence", "MIT"]
    assert main([*given, "--max-tokens", "32", "--paragraphs", "200"]) == 1
    assert "correct the path, then repeat" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["no[a]", "no[/such]folder"])
def test_messages_show_brackets(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([f"./{name}", "bundle", "--licence", "MIT"]) == 1
    assert f"./{name}" in capsys.readouterr().err


def test_no_runtime_reports_home(tmp_path: Path) -> None:
    """Importing the runtimes writes no identifier. The control shows that they can write one."""
    # with CI set, the runtimes send no reports, and the control would prove nothing
    held_back = ("ORT_DISABLE_TELEMETRY", "CI")
    environment = {k: v for k, v in os.environ.items() if k not in held_back}
    left = {}
    # nncf takes three seconds to import, and reports by openvino's library
    every = "openvino, nncf, onnxruntime" if NIGHTLY else "openvino, onnxruntime"
    for first, runtimes in (
        ("import export", every),
        ("pass", "openvino, onnxruntime"),
    ):
        home = tmp_path / first.replace(" ", "-")
        home.mkdir()
        code = f"{first}; import {runtimes}"
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
        )
        left[first] = [p for p in home.rglob("*") if p.is_file()]
    assert left["import export"] == []
    assert {"openvino_ga_cid", "deviceid"} <= {path.name for path in left["pass"]}


def test_a_wrong_number_of_paragraphs_gets_words_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["a", "b", "--paragraphs", "many"])
    assert "--paragraphs: 'many' is not a whole number above 0" in capsys.readouterr().err
