"""Write the report of a folder of results."""

import json
from pathlib import Path

from corpora.errors import DataError
from training.evaluation.report.markdown import render
from training.evaluation.report.plots import draw
from training.evaluation.results import Result, every

MARKDOWN = "report.md"
JSON = "report.json"


def write_report(out: Path) -> Path:
    """Write ``report.md``, ``report.json`` and the plots of all results in ``out``.

    Returns:
        The Markdown file's path.

    Raises:
        DataError: there are no results.
    """
    results = sorted(every(out), key=_place)
    if not results:
        raise DataError(f"{out}: no results to report; name an encoder and --data")
    plots = draw(results, out)
    content = [result.model_dump(mode="json") for result in results]
    (out / JSON).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path = out / MARKDOWN
    path.write_text(render(results, plots), encoding="utf-8")
    return path


def _place(result: Result) -> tuple[bool, str, str, str]:
    """Encoders before controls, then by name."""
    return result.kind == "control", result.encoder, result.task, result.data
