"""The number of values of a JSON body, counted without parsing it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.server.edge import structure

HARD = st.text(alphabet='a,:[{"\\é\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | HARD,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(HARD, inner, max_size=4),
    max_leaves=20,
)


def marks(value: Any) -> int:
    """Marks of a parsed value: one per list, object and key, and one between two items."""
    if isinstance(value, dict):
        return 1 + len(value) + max(len(value) - 1, 0) + sum(map(marks, value.values()))
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(map(marks, value))
    return 0


@given(VALUES)
@pytest.mark.parametrize("step", [1, 2, 7, structure.STEP])
def test_marks_in_strings_do_not_count(step: int, value: Any) -> None:
    body = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "STEP", step)
        *_, found = structure.values(body)
    assert found == 1 + marks(value)
    assert 1 + structure.marks(body) >= found


def test_the_quick_bound_counts_marks_in_strings() -> None:
    body = b'{"inputs": "a, b, [c]: d"}'
    *_, found = structure.values(body)
    assert (found, 1 + structure.marks(body)) == (3, 7)


@pytest.mark.parametrize(
    "body", [b"", b'"', b"\\", b'"\\', b'{"a": "b', b"\\" * 9 + b'"', b"\xff,"]
)
def test_bytes_that_are_not_json_are_counted_without_an_error(body: bytes) -> None:
    *_, found = (1, *structure.values(body))
    assert found <= 1 + structure.marks(body)
