"""Write the report of a folder of results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docsplit.corpora.fields import DataError
from training.evaluation.report.differences import Difference, differences
from training.evaluation.report.markdown import render
from training.evaluation.report.plots import draw
from training.evaluation.results import Result, every

MARKDOWN = "report.md"
JSON = "report.json"
# the files in results/ hold the outcomes; a reader of the report rarely needs them
_KEPT = {"measured": {"items"}}


@dataclass(frozen=True)
class Report:
    """A written report.

    Attributes:
        path: the Markdown file.
        baseline: name of the encoder that the others are compared with.
        differences: to the baseline.
    """

    path: Path
    baseline: str
    differences: Sequence[Difference]


def write_report(out: Path, baseline: str | None = None) -> Report:
    """Write ``report.md``, ``report.json`` and the plots of all results in ``out``.

    Args:
        out: the folder.
        baseline: name of the encoder to compare with; by default that of the last report, else the
            first encoder in the report.

    Raises:
        DataError: there are no results, or none of the baseline.
    """
    results = sorted(every(out), key=_place)
    if not results:
        raise DataError(
            f"{out}: no results to report; name an encoder, --data, and --tasks that suit both"
        )
    names = list(dict.fromkeys(result.encoder for result in results))
    if baseline is None:
        last = _last_baseline(out)
        baseline = last if last in names else names[0]
    elif baseline not in names:
        raise DataError(f"--baseline {baseline}: no such encoder; {out} holds {', '.join(names)}")
    found = differences(results, baseline)
    plots = draw(results, out)
    content = {
        "baseline": baseline,
        "differences": [one.record() for one in found],
        "results": [result.model_dump(mode="json", exclude=_KEPT) for result in results],
    }
    (out / JSON).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path = out / MARKDOWN
    path.write_text(render(results, plots, baseline, found), encoding="utf-8")
    return Report(path, baseline, found)


def _last_baseline(out: Path) -> str | None:
    try:
        found = json.loads((out / JSON).read_bytes())
    except (OSError, ValueError):
        return None
    return found.get("baseline") if isinstance(found, dict) else None


def _place(result: Result) -> tuple[bool, str, str, str]:
    """Encoders before controls, then by name."""
    return result.kind == "control", result.encoder, result.task, result.data
