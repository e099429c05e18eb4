"""The held-out data of the gate's tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from docsplit.corpora.catalogue import judged_files
from docsplit.corpora.errors import DataError
from docsplit.corpora.fields import Fields
from docsplit.corpora.files import TABLES, stem
from docsplit.corpora.reading import read_judged, read_labelled
from docsplit.corpora.tables import is_table
from export.errors import ExportError
from export.tasks.probe import Probe
from export.tasks.retrieval import Retrieval
from export.tasks.task import Task

# Shorter runs of words can be equal by chance.
_SHARED_WORDS = 24


@dataclass(frozen=True)
class HeldOut:
    """Data that neither the training nor the calibration of a bundle reads.

    Attributes:
        retrieval: folders with corpus, queries and qrels.
        probe: tables with a label.
        fields: names of columns, and the number of documents to read from a set.
    """

    retrieval: Sequence[Path] = ()
    probe: Sequence[Path] = ()
    fields: Fields = field(default_factory=Fields)


def read_tasks(held_out: HeldOut, calibration: Path, passages: Sequence[str]) -> list[Task]:
    """Read the data, and check that they do not contain the calibration data of int8.

    Args:
        held_out: the data to read.
        calibration: the calibration file.
        passages: the passages from that file.

    Raises:
        DataError: a folder or file cannot be read.
        ExportError: the data are the calibration file or share a passage with it, or two sets
            have the same name.
    """
    tasks: list[Task] = []
    for folder in held_out.retrieval:
        files = judged_files(folder)
        if files is None:
            raise DataError(f"--retrieval {folder}: not a folder with corpus, queries and qrels")
        _check_file(files, calibration)
        name = folder.resolve().name
        tasks.append(Retrieval(read_judged(*files, name, held_out.fields)))
    for path in held_out.probe:
        if not path.exists():
            raise DataError(f"--probe {path}: no such file")
        if not is_table(path):
            raise DataError(f"--probe {path}: not a {', '.join(TABLES)} file")
        _check_file([path], calibration)
        tasks.append(Probe(read_labelled(path, stem(path), held_out.fields)))
    names = [(task.name, task.data) for task in tasks]
    for name, data in names:
        if names.count((name, data)) > 1:
            raise ExportError(f"--{name}: two sets are named {data}; rename one of them")
    for task in tasks:
        _check_texts(task, passages)
    return tasks


def _check_file(files: Sequence[Path], calibration: Path) -> None:
    for path in files:
        if path.resolve() == calibration.resolve():
            raise ExportError(
                f"{path}: calibrates the int8 graph, so it cannot measure it; give held-out data, "
                "or other text with --calibration"
            )


def _check_texts(task: Task, passages: Sequence[str]) -> None:
    """Search the texts for the beginnings of long passages; short ones must be whole texts."""
    words = [tuple(passage.split()) for passage in passages]
    whole = {own for own in words if len(own) < _SHARED_WORDS}
    begun = {own[:_SHARED_WORDS] for own in words if len(own) >= _SHARED_WORDS}
    first = {own[0] for own in begun}
    for text in task.texts:
        own = tuple(text.split())
        if own in whole or any(
            word in first and own[i : i + _SHARED_WORDS] in begun for i, word in enumerate(own)
        ):
            raise ExportError(
                f"{task.data}: holds a passage that calibrates the int8 graph, in the text "
                f"{text[:60]!r}; give other text with --calibration"
            )
