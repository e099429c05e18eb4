"""Compare this service with other embedding servers: same weights, texts, machine and run.

    python -m benchmarks.comparison --data news20.parquet --split test

All servers stay in memory. A signal stops those that are not measured. Every round of a scenario
measures each server in turn. Rates are medians over the rounds; latencies are quantiles over all
rounds. Tokens are those that a server embeds: all of a document here, its first 512 at a peer.

The first run installs the peers in .cache/peers. A full run writes its tables and plots into
docs/explanation/measurements/servers.md; other runs print them. Ctrl+C ends the run and prints
the figures measured so far.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer

from benchmarks.comparison import overhead, report
from benchmarks.comparison.peers import environments, servers
from benchmarks.comparison.peers.servers import Side
from benchmarks.comparison.results import Results
from benchmarks.comparison.scenarios import (
    FULL,
    QUICK,
    Bench,
    Scenario,
    ScenarioError,
    Size,
    latency,
    overloaded,
    repeats,
    throughput,
)
from benchmarks.rig import documents, start_bundle
from benchmarks.rig.client import Client
from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import TOKENIZER

ENGINE = "engine"
NAMES = (
    *("clients-1", "clients-16", "clients-64", "groups", "articles"),
    *("hot", "edited", "beside", "offered", "overload", ENGINE),
)
KINDS = (throughput, repeats, latency, overloaded)
ROOT = documents.PEPS.parent.parent.parent
CACHE = ROOT / ".cache" / "bench"
DOCUMENT = ROOT / "docs" / "explanation" / "measurements" / "servers.md"
# minimum number of words of an article
LONG = 1000
# above this load average of the last minute, other programs use the processor
BUSY = 0.5


def main() -> None:
    """Measure, print, write."""
    given = _options()
    size = QUICK if given.quick else FULL
    console = Console()
    results = Results(load=os.getloadavg()[0])
    if results.load > BUSY:
        console.print(
            f"the machine is busy (load {results.load:.1f}), so the figures will be wrong"
        )
    engine: dict[str, Any] | None = None
    complete = False
    start_bundle.provide()
    try:
        texts = documents.read(given.data, 2 * size.documents, split=given.split)
        if given.only in (None, ENGINE):
            few = texts[: size.documents]
            engine = overhead.measure(few, rounds=given.rounds or size.rounds, flags=given.flags)
        if given.only != ENGINE:
            _compare(given, size, texts, results, console)
        complete = True
    except KeyboardInterrupt:
        console.print("interrupted: these are the figures so far")
    finally:
        CACHE.mkdir(parents=True, exist_ok=True)
        content = {"engine": engine, **results.content()}
        kept = CACHE / "results.json"
        kept.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    made = report.markdown(results, engine, _command(given), len(texts))
    console.print(made, highlight=False, markup=False, soft_wrap=True)
    if given.output is not None or (complete and given.only is None and not given.quick):
        output = given.output or DOCUMENT
        report.write(output, made, results)
        console.print(f"written into {output}")


def _compare(
    given: argparse.Namespace, size: Size, texts: list[str], results: Results, console: Console
) -> None:
    articles = [
        text
        for text in documents.read(given.articles, size.articles * 20)
        if len(text.split()) >= LONG
    ]
    if len(articles) < size.articles:
        raise SystemExit(
            f"{given.articles}: too few documents of {LONG} words: {len(articles)}; "
            "give others with --articles"
        )
    tokenizer = Tokenizer.from_file(str(bundle.load(start_bundle.BUNDLE).path(TOKENIZER)))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with contextlib.ExitStack() as stack:
        bench = Bench(stack.enter_context(Client()), tokenizer, texts, articles, size)
        chosen = [
            scenario
            for kind in KINDS
            for scenario in kind(bench)
            if given.only in (None, scenario.name)
        ]
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = _start(stack, given, work, chosen, results, console)
        for side in sides:
            with side.awake():
                warm = itertools.islice(documents.unseen(texts), 16)
                bench.closed(side, [[text] for text in warm], 16)
        try:
            _run(chosen, sides, results, given.rounds or size.rounds, console)
        finally:
            for side in sides:
                results.rss_mb[side.name] = round(side.service.peak_rss_mb())
                results.ready_seconds[side.name] = round(side.service.ready_seconds, 1)


def _start(
    stack: contextlib.ExitStack,
    given: argparse.Namespace,
    work: Path,
    chosen: list[Scenario],
    results: Results,
    console: Console,
) -> list[Side]:
    sides = []
    for keeps in sorted({scenario.keeps for scenario in chosen}):
        with console.status("starting docsplit"):
            sides.append(stack.enter_context(servers.docsplit(work, keeps, given.flags)))
    for name in given.peers:
        with console.status(f"starting {name}; the first start installs it"):
            try:
                sides.append(stack.enter_context(servers.peer(name)))
            except environments.PeerError as error:
                results.left_out[name] = str(error)
                console.print(f"{name} is left out: {error}", markup=False)
    return sides


def _run(
    chosen: list[Scenario], sides: list[Side], results: Results, rounds: int, console: Console
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        overall = progress.add_task("scenarios", total=len(chosen))
        for scenario in chosen:
            turns = [
                side
                for side in sides
                if side.deadline_header is None or side.keeps == scenario.keeps
            ]
            count = min(rounds, scenario.rounds or rounds)
            task = progress.add_task(scenario.name, total=count * len(turns))
            results.titles[scenario.name] = scenario.title
            found = results.rounds.setdefault(scenario.name, {side.name: [] for side in turns})
            for side in turns if scenario.prepare else ():
                assert scenario.prepare is not None
                with side.awake():
                    scenario.prepare(side)
            for number in range(count):
                for side in (*turns[number % len(turns) :], *turns[: number % len(turns)]):
                    progress.update(task, description=f"{scenario.name}: {side.name}")
                    try:
                        with side.awake():
                            found[side.name].append(scenario.measure(side, number))
                    except ScenarioError as error:
                        results.left_out[f"{side.name}, {scenario.name}"] = str(error)
                    progress.advance(task)
            for name in [name for name, made in found.items() if not made]:
                del found[name]
            progress.update(task, description=scenario.name)
            progress.advance(overall)


def _command(given: argparse.Namespace) -> str:
    parts = []
    if given.data != documents.PEPS:
        parts.append(f"--data {given.data.name}")
    if given.split is not None:
        parts.append(f"--split {given.split}")
    if given.articles != documents.PEPS:
        parts.append(f"--articles {given.articles.name}")
    if given.quick:
        parts.append("--quick")
    if given.only is not None:
        parts.append(f"--only {given.only}")
    if given.rounds is not None:
        parts.append(f"--rounds {given.rounds}")
    if given.peers != list(servers.PEERS):
        parts.append(f"--peers {','.join(given.peers) or 'none'}")
    if given.flags:
        parts.append(f"-- {' '.join(given.flags)}")
    return f'make bench ARGS="{" ".join(parts)}"' if parts else "make bench"


def _peers(value: str) -> list[str]:
    if value == "none":
        return []
    names = list(servers.PEERS) if value == "all" else value.split(",")
    for name in names:
        if name not in servers.PEERS:
            raise argparse.ArgumentTypeError(
                f"{name}: none of {', '.join(servers.PEERS)}, all, none"
            )
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.comparison",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=documents.PEPS, help="JSONL or Parquet")
    parser.add_argument("--split", help="only rows of --data with this value in the column split")
    parser.add_argument("--articles", type=Path, default=documents.PEPS, help="long documents")
    parser.add_argument("--only", choices=NAMES, metavar="SCENARIO", help=", ".join(NAMES))
    parser.add_argument(
        "--peers", type=_peers, default="all", help=f"some of {','.join(servers.PEERS)}; all; none"
    )
    parser.add_argument("--quick", action="store_true", help="few texts, one round")
    parser.add_argument("--rounds", type=int, help="number of rounds of each scenario")
    parser.add_argument("--output", type=Path, help="Markdown file to write the report into")
    parser.add_argument("flags", nargs="*", help="flags of docsplit-serve, after --")
    return parser.parse_args()


if __name__ == "__main__":
    main()
