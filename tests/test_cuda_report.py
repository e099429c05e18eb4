"""The GPU benchmark's report and command line; its measurements need a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engines.cuda import CASES, Case, Side, main, parser, table
from benchmarks.rig.start_bundle import BUNDLE
from tests.service.test_cuda import why_not


def side(**seconds: list[float]) -> Side:
    cases = {"even": Case(16, 128), "mixed": Case(64, 512, mixed=True)}
    return Side(
        run=lambda ids, mask, texts: NotImplemented,
        parity=(0.99991, 0.99999),
        seconds={cases[name]: passed for name, passed in seconds.items()},
    )


def test_the_report_shows_medians_next_to_the_peak() -> None:
    sides = {"ours": side(even=[0.002, 0.001, 9.0], mixed=[0.02]), "theirs": side(even=[0.004])}
    work = {Case(16, 128): 45e9, Case(64, 512, mixed=True): 400e9}
    lines = table("A card", 90e12, sides, work).splitlines()
    assert lines[0].startswith("A card; ")
    assert lines[0].endswith(" 90 TFLOP/s.")
    assert "16 x 128: tokens/s" in lines[2]
    assert "64 x mixed to 512: tokens/s" in lines[2]
    mixed = sum(Case(64, 512, mixed=True).lengths())
    assert lines[4] == (
        f"| ours | 0.999910 | 0.999990 | 1,024,000 | 25.0% | {mixed / 0.02:,.0f} | 22.2% |"
    )
    assert lines[5] == "| theirs | 0.999910 | 0.999990 | 512,000 | 12.5% | – | – |"
    assert {line.count("|") for line in lines[2:]} == {lines[2].count("|")}


def test_the_cases_match_the_aims() -> None:
    even = [(case.rows, case.tokens) for case in CASES if not case.mixed]
    assert even == [(16, 128), (64, 512), (8, 4096)]
    assert set(Case(16, 128).lengths()) == {128}
    lengths = Case(64, 512, mixed=True).lengths()
    assert (len(lengths), lengths[0], lengths[-1]) == (64, 512, 16)


def test_the_command_line_has_defaults() -> None:
    given = parser().parse_args([])
    assert given.bundle == BUNDLE
    assert given.source is None
    with pytest.raises(SystemExit):
        parser().parse_args(["--rounds", "many"])


@pytest.mark.skipif(why_not() is None, reason="CUDA is here")
def test_without_a_gpu_it_reports_that_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path / "report.md")]) == 2
    said = capsys.readouterr()
    assert "nothing was measured: onnxruntime has no CUDA" in said.err
    assert said.out == ""
    assert not (tmp_path / "report.md").exists()


@pytest.mark.gpu
@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_on_a_gpu_it_reports(tmp_path: Path) -> None:
    assert main(["--rounds", "2", "--output", str(tmp_path / "report.md")]) == 0
    report = (tmp_path / "report.md").read_text()
    assert "docsplit, packed | 0.9999" in report or "docsplit, packed | 1.0" in report
