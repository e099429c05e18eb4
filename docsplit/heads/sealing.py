"""The checksum of a stored head, in its report: of its names, labels and figures.

Former heads have none. Former versions read a report with a checksum, which they ignore.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_FIELD = "checksum"
_TEXTS = ("name", "uid", "revision")
# the columns that a report's checksum covers, and the report
COLUMNS = (*_TEXTS, "labels", "network", "report")


def sealed(row: Mapping[str, Any]) -> str:
    """The report of a head as JSON, with a checksum.

    Args:
        row: has ``COLUMNS``; the report is a mapping, the network the bytes of a file.
    """
    return json.dumps({**row["report"], _FIELD: _checksum(row, row["report"])})


def unsealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a stored head.

    Args:
        row: has ``COLUMNS``, with the report that ``sealed`` returned.

    Raises:
        TypeError, ValueError: the row does not match its checksum.
    """
    report: dict[str, Any] = json.loads(row["report"])
    held = report.pop(_FIELD, None)
    if held is not None and held != _checksum(row, report):
        raise ValueError("the head differs from its checksum")
    return report


def _checksum(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    texts = [*(row[name] for name in _TEXTS), *row["labels"], json.dumps(report)]
    parts = [row["network"], *(text.encode("utf-8", "surrogatepass") for text in texts)]
    # each part follows its length, so that no two rows give the same bytes
    state = hashlib.blake2b(repr([len(part) for part in parts]).encode(), digest_size=16)
    for part in parts:
        state.update(part)
    return state.hexdigest()
