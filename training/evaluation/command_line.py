"""``docsplit-evaluate``: compare encoders on data in one table."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from docsplit.corpora.fields import DataError, Fields, add_field_flags
from export.errors import explained
from export.options import count, interruptible
from training.errors import SettingsError, TrainingError
from training.evaluation.encoders import CONTROLS, add_precision_flag

if TYPE_CHECKING:
    from docsplit.corpora.catalogue import Found
    from training.evaluation.run import Request

_INTERRUPTED = 130
_WIDEST = 1000

DESCRIPTION = """\
Measure encoders on the protocols of the papers, and print one table.

An ENCODER is the folder of a bundle, the folder or hub name of a sentence-transformers encoder
(such as a checkpoint of docsplit-train), or the URL of a running service. NAME=ENCODER sets its
name in the report. The command also measures two controls: random vectors and TF-IDF.

  docsplit-evaluate docsplit/models/docsplit-minilm-l6-v3 --data examples/peps --out runs/peps
  docsplit-evaluate start=./minilm ours=runs/first/model --data ~/data --tasks probe,few-shot

The command measures nothing twice. After an interruption, run it again. Without ENCODER and
--data it rewrites the report from the results in --out. docs/how-to/evaluate.md explains tasks,
data and report.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate as the command line says; returns the exit status."""
    errors = Console(stderr=True, highlight=False)
    # encoders may stand before, between and after the flags
    given = _parser().parse_intermixed_args(arguments)
    try:
        with interruptible():
            return _run(given, errors)
    except (TrainingError, DataError, OSError) as error:
        errors.print(f"docsplit-evaluate: {explained(error)}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("interrupted; to continue, run the same command")
        return _INTERRUPTED


def _run(given: argparse.Namespace, console: Console) -> int:
    # Imported only after the command line is checked: torch takes seconds to import.
    from training.evaluation.report import HEADING, rows, write_report

    baseline = given.baseline
    if given.encoders or given.data:
        from training.evaluation.run import carry_out

        evaluated = carry_out(_request(given), console)
        baseline = baseline or evaluated.first
        for line in evaluated.left_out:
            console.print(f"left out: {line}", markup=False, soft_wrap=True)
    report = write_report(given.out, baseline)
    output = Console(highlight=False)
    cells = rows(report.differences)
    if cells:
        output.print(f"Differences to {report.baseline}", markup=False, soft_wrap=True)
        _print_table(HEADING, cells, output)
    output.print(f"report: {report.path}", markup=False, soft_wrap=True)
    return 0


def _print_table(heading: Sequence[str], cells: Sequence[Sequence[str]], output: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in heading:
        table.add_column(name, no_wrap=True)
    for line in cells:
        table.add_row(*map(Text, line))
    # Lines longer than the terminal are better than cut cells. rich bounds a table by its console.
    output.size = ConsoleDimensions(max(output.width, _WIDEST), output.height)
    output.print(table, crop=False)


def _request(given: argparse.Namespace) -> Request:
    from docsplit.corpora.catalogue import discover
    from docsplit.corpora.sets import Linked
    from training.evaluation.run import Request
    from training.evaluation.tasks import chosen
    from training.evaluation.tasks.task import Options

    if not given.data:
        raise SettingsError("--data: name a folder or file of documents")
    tasks = chosen(given.tasks)
    masks = _masks(given.mask)
    sets = discover(given.data, Fields.given(given, given.limit), masks)
    _check_names("--mask", masks, [found for found in sets if issubclass(found.kind, Linked)])
    if given.sets is not None:
        _check_names("--sets", given.sets, sets)
        sets = [found for found in sets if found.name in given.sets]
    if not any(issubclass(found.kind, task.kinds) for found in sets for task in tasks):
        kinds = ", ".join(f"{found.name} ({found.kind.__name__.lower()})" for found in sets)
        raise SettingsError(f"--tasks {','.join(t.name for t in tasks)}: none fits {kinds}")
    controls = [name for name in CONTROLS if name not in given.encoders]
    return Request(
        encoders=[*given.encoders, *([] if given.no_controls else controls)],
        sets=sets,
        tasks=tasks,
        options=Options(
            seed=given.seed,
            draws=given.draws,
            shots=tuple(given.shots),
            epochs=given.epochs,
            steps=given.steps,
            copies=tuple(given.copies),
            sample=given.sample,
            reading="first" if given.first_window else "whole",
            spacy_model=given.spacy_model,
        ),
        out=given.out,
        cache=given.cache,
        baseline=given.baseline,
        max_tokens=given.max_tokens,
        precision=given.precision,
        trust_remote_code=given.trust_remote_code,
    )


def _check_names(flag: str, names: Iterable[str], sets: Sequence[Found]) -> None:
    held = [found.name for found in sets]
    for name in names:
        if name not in held:
            shown = f"--data holds {', '.join(held)}" if held else "--data holds none that it fits"
            raise SettingsError(f"{flag}: no set {name!r}; {shown}")


def _masks(given: Sequence[str]) -> dict[str, str]:
    masks = {}
    for one in given:
        name, separator, pattern = one.partition("=")
        if not separator or not name:
            raise SettingsError(f"--mask {one}: expected SET=REGEX")
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"--mask {one}: not a valid regular expression ({error})") from None
        masks[name] = pattern
    return masks


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(text: str) -> list[int]:
    values = sorted({count(part) for part in _names(text)})
    if not values:
        raise argparse.ArgumentTypeError("name at least one number")
    return values


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="docsplit-evaluate",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("encoders", nargs="*", metavar="ENCODER")
    add("--data", type=Path, action="append", metavar="DIR", help="folder or file; may be repeated")
    add("--tasks", type=_names, metavar="A,B", help="default: all tasks that fit the data")
    add("--sets", type=_names, metavar="A,B", help="sets of --data, by name; default: all")
    add(
        "--baseline",
        metavar="NAME",
        help="encoder to compare the others with, by its name; default: the first one given",
    )
    add("--out", type=Path, default=Path("runs/evaluation"), help="default: runs/evaluation")
    add(
        "--cache",
        type=Path,
        default=Path(".cache/evaluation"),
        help="folder of the vectors; default: .cache/evaluation",
    )
    add("--limit", type=count, metavar="N", help="maximum documents of each set and part")
    add("--first-window", action="store_true", help="read only the first window of each document")
    add("--max-tokens", type=count, help="window of a sentence-transformers encoder")
    add_precision_flag(parser)
    add(
        "--trust-remote-code",
        action="store_true",
        help="run modelling code in the folder of an encoder's weights",
    )
    add("--no-controls", action="store_true", help="measure neither random vectors nor TF-IDF")
    add("--draws", type=count, default=10, help="few-shot draws, splits of links; default: 10")
    add("--shots", type=_counts, default=[1, 2, 5, 10, 20, 50], help="default: 1,2,5,10,20,50")
    add(
        "--copies",
        type=_counts,
        default=[2, 5, 10, 20, 50, 100],
        help="numbers of copies of a text",
    )
    add("--sample", type=count, default=200, help="documents of unlabelled tasks; default: 200")
    add("--epochs", type=count, default=20, help="epochs of a probe; default: 20")
    add("--steps", type=count, default=1000, help="minimum steps of a probe; default: 1000")
    add("--seed", type=_seed, default=0, help="seed of every draw; default: 0")
    add_field_flags(parser, "text", "id", "title", "label")
    add(
        "--spacy-model",
        default="en_core_web_sm",
        help="pipeline that tags parts of speech; default: en_core_web_sm; hanta needs no download",
    )
    add(
        "--mask",
        action="append",
        default=[],
        metavar="SET=REGEX",
        help="delete text that reveals links from the texts of a linked set",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
