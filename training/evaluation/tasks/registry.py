"""All tasks, in the order of the report."""

import difflib
from collections.abc import Sequence

from training.errors import SettingsError
from training.evaluation.tasks.attention import Attention
from training.evaluation.tasks.citation_links import CitationLinks
from training.evaluation.tasks.citation_retrieval import CitationRetrieval
from training.evaluation.tasks.elongation import Elongation
from training.evaluation.tasks.few_shot import FewShot
from training.evaluation.tasks.geometry import Geometry
from training.evaluation.tasks.halves import Halves
from training.evaluation.tasks.length import Length
from training.evaluation.tasks.probe import Probe
from training.evaluation.tasks.redundancy import Redundancy
from training.evaluation.tasks.retrieval import Retrieval
from training.evaluation.tasks.same_document import SameDocument
from training.evaluation.tasks.task import Task

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
