"""``docsplit-evaluate`` from the command line to the report."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import ROOT
from training.evaluation.command_line import _parser, main
from training.evaluation.report import figure, number, papers, reported, table
from training.evaluation.tasks import TASKS
from training.evaluation.tasks.task import Figure, every

QUICK = ["--draws", "2", "--shots", "1,2", "--epochs", "1", "--steps", "20"]
QUICK += ["--copies", "2,5", "--sample", "30"]
FEW = ["--tasks", "retrieval,few-shot", "--sets", "claims,topics"]


def run(tiny_model: Path, data: Path, work: Path, *more: str) -> int:
    out, cache = work / "out", work / "cache"
    given = [f"tiny={tiny_model}", "--max-tokens", "32", "--data", str(data), "--out", str(out)]
    return main([*given, "--cache", str(cache), *QUICK, *more])


@pytest.fixture(scope="module")
def done(tiny_model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete evaluation."""
    work = tmp_path_factory.mktemp("evaluation")
    assert run(tiny_model, data, work) == 0
    return work


def test_the_report_has_every_task_and_encoder(done: Path) -> None:
    report = (done / "out" / "report.md").read_text(encoding="utf-8")
    tasks = [task for task in TASKS.values() if not task.asked_for]
    for task in tasks:
        assert f"## {task.title}\n\nSource: {task.source}.\n\n{task.differences}" in report
    for encoder in ("tiny", "random", "tf-idf"):
        assert f"\n| {encoder} |" in report
    rows = json.loads((done / "out" / "report.json").read_text(encoding="utf-8"))["results"]
    assert {(row["task"], row["encoder"]) for row in rows} >= {
        (task.name, encoder) for task in tasks for encoder in ("tiny", "random")
    }
    [probe] = [r for r in rows if (r["task"], r["encoder"]) == ("probe", "tiny")]
    shown = figure(Figure(**probe["measured"]["figures"]["accuracy"]))
    section = report.split("## Probe classification")[1].split("\n## ")[0]
    assert f"| tiny | {shown} |" in section


def test_the_report_compares_with_the_first_encoder(
    done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    report = (done / "out" / "report.md").read_text(encoding="utf-8")
    section = report.split("## Differences to tiny\n")[1].split("\n## ")[0]
    found = {tuple(line.split(" | ")[:4]) for line in section.splitlines() if "| " in line}
    for data, task, column in (
        ("topics", "probe", "accuracy"),
        ("papers", "citation-retrieval", "MRR"),
        ("claims", "retrieval", "nDCG@10"),
        ("plain", "halves", "MRR"),
    ):
        for encoder in ("random", "tf-idf"):
            assert (f"| {data}", task, column, encoder) in found
    assert "not comparable" not in section
    assert main(["--out", str(done / "out"), "--baseline", "random"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Differences to random\n")
    assert re.search(r"^topics +probe +accuracy +tf-idf .* above *$", shown, re.MULTILINE)
    # it has four queries, of which too few change
    assert re.search(r"^claims +retrieval +nDCG@10 +tf-idf .* around *$", shown, re.MULTILINE)
    assert main(["--out", str(done / "out"), "--baseline", "tiny"]) == 0
    assert (done / "out" / "report.md").read_text(encoding="utf-8") == report
    assert main(["--out", str(done / "out"), "--baseline", "tidy"]) == 1
    assert "no such encoder" in capsys.readouterr().err


def test_other_options_are_not_compared(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    few = ["--tasks", "few-shot", "--sets", "topics", "--shots", "5"]
    assert run(tiny_model, data, tmp_path, *few, "--no-controls") == 0
    more = ["tf-idf", "--data", str(data), *QUICK, *few, "--no-controls"]
    more += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    report = tmp_path / "out" / "report.md"
    assert main([*more, "--baseline", "tiny"]) == 0
    assert "not comparable" not in report.read_text(encoding="utf-8")
    assert main([*more, "--draws", "3", "--baseline", "tiny"]) == 0
    assert "| – | not comparable |" in report.read_text(encoding="utf-8")


def test_plots_are_written_and_shown(done: Path) -> None:
    report = (done / "out" / "report.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[(.+?)\]", report))
    assert shown == {path.name for path in (done / "out").glob("*.png")}
    assert shown >= {
        "bars-probe.png",
        "few-shot-topics.png",
        "time-quality.png",
        "elongation-plain.png",
        "similarities-plain.png",
        "length-papers.png",
    }
    assert all((done / "out" / name).stat().st_size > 5_000 for name in shown)


def test_nothing_is_measured_twice(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny_model, data, tmp_path, *FEW) == 0
    assert "(kept)" not in capsys.readouterr().err
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "results").rglob("*.json")}
    report = tmp_path / "out" / "report.md"
    first = report.read_text(encoding="utf-8")
    assert run(tiny_model, data, tmp_path, *FEW) == 0
    assert before == {p: p.stat().st_mtime_ns for p in before}
    assert capsys.readouterr().err.count("(kept)") == len(before)
    report.unlink()
    assert main(["--out", str(tmp_path / "out")]) == 0
    assert report.read_text(encoding="utf-8") == first
    assert run(tiny_model, data, tmp_path, *FEW, "--shots", "1") == 0
    changed = [p for p in before if p.stat().st_mtime_ns != before[p]]
    assert {p.name for p in changed} == {"few-shot-topics.json"}


def test_an_interrupted_evaluation_continues(
    tiny_model: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ["--tasks", "same-document,retrieval", "--sets", "claims", "--no-controls"]

    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(TASKS["retrieval"], "run", interrupted)
        assert run(tiny_model, data, tmp_path, *chosen) == 130
    assert "to continue, run the same command" in capsys.readouterr().err
    assert [r.task for r in every(tmp_path / "out")] == ["same-document"]
    assert run(tiny_model, data, tmp_path, *chosen) == 0
    assert capsys.readouterr().err.count("(kept)") == 1
    assert len(list(every(tmp_path / "out"))) == 2


def test_first_windows_get_their_own_row(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--tasks", "retrieval"]
    assert run(tiny_model, data, tmp_path, *chosen) == 0
    assert run(tiny_model, data, tmp_path, *chosen, "--first-window") == 0
    assert "left out: tf-idf, first window: has no windows" in capsys.readouterr().err
    found = {r.encoder: r.measured.figures["ndcg_10"].value for r in every(tmp_path / "out")}
    assert set(found) == {"tiny", "tiny, first window", "random", "random, first window", "tf-idf"}
    assert found["tiny"] != found["tiny, first window"]


def test_a_report_needs_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path)]) == 1
    assert "no results to report" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tasks", "few-shoot"], "no task 'few-shoot'; did you mean few-shot?"),
        (["--sets", "bbc"], "no set 'bbc'; --data holds claims, papers, plain, topics"),
        (["--tasks", "probe", "--sets", "plain"], "--tasks probe: none fits plain (documents)"),
        (["--mask", "papers"], "--mask papers: expected SET=REGEX"),
        (["--mask", "papers=("], "not a valid regular expression"),
        (["--mask", "paper=x"], "--mask: no set 'paper'; --data holds papers"),
        (["--mask", "topics=x"], "--mask: no set 'topics'; --data holds papers"),
        (["--data", "away"], "--data away: no such file or folder"),
    ],
)
def test_wrong_arguments_are_named(
    more: list[str],
    message: str,
    tiny_model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(tiny_model, data, tmp_path, *more) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["tiny={tiny}"], "both called tiny"),
        (["other={tiny}/absent"], "absent': no such folder"),
        (["{tiny}/config.json"], "config.json: give the folder of a bundle"),
        (
            ["--baseline", "tidy"],
            "--baseline tidy: no such encoder; there are tiny, random, tf-idf",
        ),
        (["--baseline", "tiny", "--first-window"], "there are tiny, first window, random"),
    ],
)
def test_encoders_and_baseline_are_checked_before_the_first_measurement(
    more: list[str],
    message: str,
    tiny_model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [f"tiny={tiny_model}", *(one.format(tiny=tiny_model) for one in more)]
    given += ["--max-tokens", "32", "--data", str(data), "--tasks", "retrieval"]
    out = tmp_path / "out"
    assert main([*given, "--out", str(out), "--cache", str(tmp_path / "cache")]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_baseline_of_former_results_is_taken(
    done: Path, tiny_model: Path, data: Path, tmp_path: Path
) -> None:
    left_out = [f"{task}-*" for task in TASKS if task != "retrieval"]
    others = shutil.ignore_patterns("*.png", *left_out)
    shutil.copytree(done / "out", tmp_path / "out", ignore=others)
    more = ["--tasks", "retrieval", "--no-controls", "--baseline", "random"]
    assert run(tiny_model, data, tmp_path, *more) == 0


def test_encoders_whose_names_have_no_latin_letters_are_kept_apart(
    tiny_model: Path, data: Path, tmp_path: Path
) -> None:
    names = ["модель", "кодер"]
    for name in names:
        shutil.copytree(tiny_model, tmp_path / name)
        given = [str(tmp_path / name), "--data", str(data), "--tasks", "retrieval"]
        places = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
        assert main([*given, *places, "--no-controls", "--max-tokens", "32"]) == 0
    # as a former version wrote it
    [one, _] = sorted((tmp_path / "out" / "results").iterdir())
    shutil.copytree(one, tmp_path / "out" / "results" / "-")
    found = [result.encoder for result in every(tmp_path / "out")]
    assert sorted(found) == sorted(names)


def test_missing_data_is_named(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tiny_model)]) == 1
    assert "--data: name a folder" in capsys.readouterr().err


def test_encoders_may_stand_around_flags_and_tables_are_whole(
    tiny_model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    given = ["--tasks", "retrieval", "--data", str(data), "random", "--max-tokens", "32"]
    places = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main([f"first={tiny_model}", *given, *places]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "random" in shown


@pytest.mark.parametrize("flag", ["--draws", "--shots", "--limit"])
def test_counts_are_above_zero(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["random", flag, "0"])
    assert "not a whole number above 0" in capsys.readouterr().err


def test_a_seed_is_not_below_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["random", "--data", "nowhere", "--seed", "-1"])
    assert "--seed: '-1' is not a whole number of 0 or more" in capsys.readouterr().err


def test_tables_format_numbers() -> None:
    assert [number(v) for v in (0.9578, 1.0, -0.012, -0.0001, 12.3)] == [
        ".958",
        "1.000",
        "−.012",
        ".000",
        "12.300",
    ]
    assert figure(Figure(value=0.5, deviation=0.01)) == ".500 ± .010"
    assert figure(None) == "–"
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_paper_figures_belong_to_existing_columns() -> None:
    for task, data in papers():
        assert reported(task, data)
        for row in reported(task, data):
            assert set(row.figures) <= set(TASKS[task].columns)
            assert all(0 < value < 2 for value in row.figures.values())


def test_tasks_and_flags_are_documented() -> None:
    said = (ROOT / "docs" / "how-to" / "evaluate.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z-]+)` \|", said, re.MULTILINE)
    assert documented == list(TASKS)
    flags = {o for action in _parser()._actions for o in action.option_strings if o[:2] == "--"}
    assert {flag for flag in flags if f"`{flag}" not in said} == {"--help"}


def test_a_full_disk_or_an_unusable_path_ends_the_program_with_a_message(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["random", "--no-controls", "--data", str(data), "--sets", "plain", "--tasks", "halves"]
    given += ["--sample", "30", "--cache", str(tmp_path / "cache")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        assert main([*given, "--out", str(tmp_path / "out")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert re.search(r"\.sqlite: could not be written \(.*; free space", capsys.readouterr().err)
    (tmp_path / "file").touch()
    assert main([*given, "--out", str(tmp_path / "file")]) == 1
    assert "correct the path, then repeat" in capsys.readouterr().err
    assert main([*given, "--out", str(tmp_path / "out")]) == 0
