"""All tasks, in the order of the report."""

import difflib
from collections.abc import Sequence

from training.errors import SettingsError
from training.evaluation.tasks.labelled import (
    CitationLinks,
    CitationRetrieval,
    FewShot,
    Length,
    Probe,
)
from training.evaluation.tasks.task import Figure, Result, Task
from training.evaluation.tasks.texts import (
    Attention,
    Elongation,
    Geometry,
    Halves,
    Redundancy,
    Retrieval,
    SameDocument,
)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Probe(),
        FewShot(),
        CitationLinks(),
        CitationRetrieval(),
        Retrieval(),
        Elongation(),
        Length(),
        Geometry(),
        SameDocument(),
        Halves(),
        Redundancy(),
        Attention(),
    )
}


def chosen(names: Sequence[str] | None) -> list[Task]:
    """Tasks by name; for None, all except those that run only on request.

    Raises:
        SettingsError: a name belongs to no task.
    """
    if names is None:
        return [task for task in TASKS.values() if not task.asked_for]
    for name in names:
        if name not in TASKS:
            close = difflib.get_close_matches(name, TASKS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingsError(f"--tasks: no task {name!r}{hint} The tasks are {', '.join(TASKS)}")
    return [TASKS[name] for name in dict.fromkeys(names)]


def main_heading(task: Task) -> str:
    """Heading of the main figure of a task."""
    return task.columns[task.main] if task.main else ""


def main_figure(result: Result | None) -> Figure | None:
    """The main figure of a result."""
    if result is None:
        return None
    main = TASKS[result.task].main
    return result.measured.figures.get(main) if main else None
