"""``docsplit-index``: progress, resume, refusals."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docsplit.bundles.format import Bundle
from docsplit.engines.build import build
from docsplit.engines.choice import Choice
from docsplit.engines.interface import Engine
from service.bulk.__main__ import main
from service.index import maintenance
from service.index.merging import Merged
from tests import forked
from tests.conftest import ROOT, serving
from tests.index import piped
from tests.index.conftest import call
from tests.storage import placed

# the flags of ``light``
_bundle: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def bundle(light: tuple[str, ...]) -> Iterator[None]:
    """The commands of this file start with little work."""
    _bundle.extend(light)
    yield
    _bundle.clear()


def flagged(source: Path, index_path: Path, *flags: str) -> list[str]:
    start = [str(source), "--index", "bulk", "--index-path", placed(index_path)]
    return [*start, "--log-level", "error", "--calibrate", "0", "--streams", "2", *_bundle, *flags]


def command(source: Path, index_path: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "service.bulk", *flagged(source, index_path, *flags)]


def run(source: Path, index_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return forked.run("service.bulk.__main__", *flagged(source, index_path, *flags), folder=ROOT)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_indexed_once(tmp_path: Path) -> None:
    store = tmp_path / "index"
    links = tmp_path / "links.csv"
    links.write_text("citing,cited\na,b\na,c\n")
    rows: list[Any] = [{"id": i, "text": f"text {i}", "year": 2000} for i in "abc"]
    bad: list[dict[str, Any]] = [{"id": "empty", "text": " "}]
    bad += [{"id": "typed", "text": "a", "year": "x"}]
    bad += [{"id": "big", "text": "a", "n": 2**64}, {"id": "\ud800", "text": "a"}]
    bad += [{"id": ".", "text": "a"}, {"id": "a\tb", "text": "a"}]
    bad += [{"id": "null", "text": None}]
    file = write(tmp_path / "documents.jsonl", *rows, rows[0] | {"text": "again"}, *bad)
    flags = ("--field", "year=integer", "--links", str(links))
    first = run(file, store, *flags, "--log-level", "info", "--log-format", "json")
    assert first.returncode == 1
    assert first.stdout == ""
    logged = [json.loads(line) for line in first.stderr.splitlines() if line.startswith("{")]
    assert "ready" in [one["event"] for one in logged]
    assert "3 written, 0 unchanged, 1 repeated ids, 7 refused" in first.stderr
    assert "big: metadata: the value of 'n' is an integer beyond 64 bits" in first.stderr
    assert "?: a text has half a surrogate pair" in first.stderr
    assert '.: id: many HTTP clients remove "." from the path' in first.stderr
    assert "id: it must have 1 to 512 characters" in first.stderr
    assert "null: " in first.stderr
    assert "documents.jsonl:11: field 'text' must be text, found NoneType" in first.stderr
    assert "typed: metadata.year is declared as integer" in first.stderr
    letter = {"id": "d", "title": "A letter", "text": "as in form 7"}
    write(file, rows[0], rows[2] | {"text": "changed"}, letter)
    further = (*flags, "--prune", "--find-links", "--link-rule", "a=Form 7", "--embed-titles")
    second = run(file, store, *further)
    assert second.returncode == 0
    assert "ready" not in second.stdout + second.stderr
    assert "2 written, 1 unchanged, 0 repeated ids, 0 refused, 1 pruned" in second.stderr
    assert "1 links in the texts of 3 documents" in second.stderr
    with serving(tmp_path / "log", *_bundle) as server:
        assert call(server, "GET", "/indexes/bulk")["documents"] == 3
        held = call(server, "GET", "/indexes/bulk/documents/a")
        assert (held["links"], held["metadata"]) == (["b", "c"], {"year": 2000})
        assert call(server, "GET", "/indexes/bulk/documents/c")["text"] == "changed"
        assert (
            call(server, "GET", "/indexes/bulk/documents/d")["text"] == "A letter\n\nas in form 7"
        )
        [link] = call(server, "GET", "/indexes/bulk/documents/d/links")["links"]
        assert (link["id"], link["given"], link["found"]) == ("a", False, True)


def test_the_command_starts_one_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service starts a second one, for single requests."""
    built: list[int] = []

    def counted(choice: Choice, bundle: Bundle, threads: int, streams: int) -> Engine:
        built.append(streams)
        return build(choice, bundle, threads, streams)

    monkeypatch.setattr("service.server.encoder.build", counted)
    file = write(tmp_path / "documents.jsonl", {"id": "a", "text": "a text"})
    flags = ["--threads", "2", "--streams", "0"]
    assert main(flagged(file, tmp_path / "index", *flags)) == 0
    assert built == [2]
    assert "1 written" in capsys.readouterr().err


def test_tables_give_the_same_documents_as_json_lines(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": i, "text": f"text {i}", "title": f"Title {i}", "year": 2000} for i in "abcd"
    ]
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "links.csv").write_text("citing,cited\na,b\nc,d\n")
    with gzip.open(folder / "early.csv.gz", "wt") as stream:
        stream.write("id,body,title,year\na,text a,Title a,2000\nb,text b,Title b,2000\n")
    table = pa.Table.from_pylist(rows[2:]).rename_columns(["id", "body", "title", "year"])
    pq.write_table(table, folder / "late.parquet")
    (folder / f"bad\x1b:smile:[red]{'x' * 80}.pdf").write_bytes(b"%PDF-1.7")
    flags = ("--field", "year=integer", "--links", str(folder / "links.csv"))
    first = run(folder, tmp_path / "index", *flags, "--text-field", "body")
    assert first.returncode == 1
    assert "4 written, 0 unchanged, 0 repeated ids, 1 refused" in first.stderr
    # a terminal would obey the name as it is, and rich puts pictures into texts
    shown = f"bad\\x1b:smile:[red]{'x' * 80}.pdf"
    assert f"refused: {shown}: a damaged PDF file" in first.stderr
    file = write(tmp_path / "documents.jsonl", *rows[:3], rows[3] | {"year": 2001})
    second = run(file, tmp_path / "index", *flags)
    assert "1 written, 3 unchanged, 0 repeated ids, 0 refused" in second.stderr


@pytest.mark.folder
@pytest.mark.parametrize("conflicts", [1, 99])
def test_writes_of_a_service_at_the_end_do_not_stop_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    conflicts: int,
) -> None:
    optimize, calls = maintenance.optimize, 0

    async def preempted(*given: Any, **options: Any) -> Merged:
        nonlocal calls
        calls += 1
        if calls <= conflicts:
            raise RuntimeError("lance error: Retryable commit conflict for version 7")
        return await optimize(*given, **options)

    monkeypatch.setattr(maintenance, "optimize", preempted)
    file = write(tmp_path / "documents.jsonl", *({"id": i, "text": f"text {i}"} for i in "abc"))
    assert main(flagged(file, tmp_path / "index", "--find-links")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "3 written, 0 unchanged" in said
    assert "0 links in the texts of 3 documents" in said
    assert ("run docsplit-index optimize bulk when they write less" in said) == (conflicts > 9)


def test_the_program_has_a_lower_priority_than_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lowered.append)
    arguments = ["nowhere.jsonl", "--index", "bulk"]
    assert main(arguments) == 2
    assert not lowered
    monkeypatch.setattr(sys, "argv", ["docsplit-index", *arguments])
    assert main() == 2
    assert lowered == [10]


@pytest.mark.folder
def test_a_repeated_run_continues_an_interrupted_one(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for number in range(600):
        (folder / "deep" / f"{number:03}.txt").write_text(f"Text number {number}.")
    tables = tmp_path / "index" / "indexes"
    with piped.command("service.bulk.__main__", *flagged(folder, tmp_path / "index")) as process:

        def wait(pattern: str, more_than: int) -> None:
            while len(list(tables.glob(f"bulk.*.lance/{pattern}"))) <= more_than:
                assert process.poll() is None
                time.sleep(0.005)

        wait("data/*", 0)
        # this file exists before the commit that it belongs to
        wait("_versions/*", len(list(tables.glob("bulk.*.lance/_versions/*"))))
        process.send_signal(signal.SIGINT)
        assert process.wait() in (130, 0)
    done = run(folder, tmp_path / "index")
    assert done.returncode == 0
    written, unchanged = (int(done.stderr.split(w)[0].split()[-1]) for w in (" written", " unchan"))
    assert written + unchanged == 600
    assert unchanged >= 256


def test_an_unsuitable_source_makes_no_index(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", {"id": "a", "text": "a"})
    unnamed = write(tmp_path / "unnamed.jsonl", {"name": "a", "text": "a"})
    store = tmp_path / "index"
    for source, flags in (
        (tmp_path / "nowhere", ()),
        (unnamed, ()),
        (good, ("--text-field", "body")),
        (good, ("--links", str(tmp_path / "nowhere.csv"))),
        (good, ("--links", str(good))),
    ):
        assert main(flagged(source, store, *flags)) == 2
    assert not store.exists()


def test_unreadable_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = write(tmp_path / "bad.jsonl", {"id": "a", "text": "a"}, {"id": 5})
    named = write(tmp_path / "a\x1b[2J\nb.jsonl", {"id": 5})
    for source, flags, hint in (
        (tmp_path / "nowhere", (), "no such file or folder"),
        (bad, (), "bad.jsonl:2"),
        (named, (), r"a\x1b[2J\nb.jsonl:1"),
        (bad, ("--field", "year=text"), "TYPE one of"),
        (bad, ("--field", "year=integer", "--field", "year=date"), "year: two types, integer and"),
        (bad, ("--index", "../x"), "lower-case"),
        (bad, ("--links", str(bad)), "citing and cited"),
        (bad, ("--link-rule", "a*=A *"), "give --find-links"),
        (bad, ("--link-field", "doi"), "give --find-links"),
        (bad, ("--ray-actors", "2"), "together with --ray"),
        (bad, ("--ray", "local", "--ray-actors", "-1"), "from 0 on"),
    ):
        flags = ("--index", "bulk", "--index-path", str(tmp_path / "index"), *flags)
        assert main([str(source), *flags]) == 2
        # a logger of an earlier test with a closed stream may have written the lines before
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert last.startswith("docsplit-index: ")
        assert hint in last


def test_flags_of_settings_stand_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store = tmp_path / "documents", placed(tmp_path / "index")
    folder.mkdir()
    write(folder / "documents.jsonl", {"id": "a", "text": "a text"})
    settings = (
        "--index-path",
        store,
        "--calibrate=0",
        "--no-mcp",
        "--log-level",
        "error",
        *_bundle,
    )
    assert main([*settings, "--index", "early", str(folder)]) == 0
    assert [one.name for one in folder.iterdir()] == ["documents.jsonl"]
    out = tmp_path / "out"
    for words in (["export", *settings, "early", str(out)], [*settings, "check", "early"]):
        assert main(words) == 0
    assert main(["optimize", *settings, "early"]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["export", "early", *settings])
    assert "required: destination" in capsys.readouterr().err
