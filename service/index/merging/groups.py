"""Which files of a table are merged next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

# A read of single rows opens every file that has some, in 0.1 ms, so there should be few. A merge
# takes up to 0.8 GB of memory, most of it for the indexes. Larger files are not merged again.
GROUP_BYTES = 512 << 20
# a fragment of this size is left as it is
FULL_BYTES = GROUP_BYTES // 2
# Each merge of rows that indexes cover changes these indexes, so it waits for so many fragments.
COVERED = 8
# share of deleted rows with which a fragment is written again
DELETED = 0.1


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that were written together.

    Attributes:
        id: in the table; fragments are in the order of their ids.
        rows: deleted ones too.
        deleted: number of deleted rows.
        bytes: of its files; None if the table does not know them.
        covered: names of the parts of indexes that cover it.
    """

    id: int
    rows: int
    deleted: int
    bytes: int | None
    covered: frozenset[str] = frozenset()


def next_group(fragments: Sequence[Fragment], *, covered: bool = True) -> list[Fragment] | None:
    """Neighbours to merge, or one fragment to write without its deleted rows; None at the end.

    Lance merges all fragments of fewer than a million rows each time, so each maintenance would
    read and write nearly the whole table. Here a fragment is rarely written more often than once
    for each factor of ``COVERED`` in size, as in a log-structured merge tree.

    Args:
        fragments: of a table, in their order.
        covered: also merge neighbours that indexes cover.
    """
    found = _groups(fragments)
    return next((group for group in found if covered or not joins_covered(group)), None)


def joins_covered(group: Sequence[Fragment]) -> bool:
    """Whether a group has several fragments, which indexes cover."""
    return len(group) > 1 and bool(group[0].covered)


def _groups(fragments: Sequence[Fragment]) -> Iterator[list[Fragment]]:
    for fragment in fragments:
        if _full(fragment) and fragment.deleted > DELETED * fragment.rows:
            yield [fragment]
    for (full, covered), run in groupby(fragments, lambda one: (_full(one), one.covered)):
        if full:
            continue
        for group in _parts(list(run)):
            large = sum(one.bytes or 0 for one in group) >= FULL_BYTES
            if len(group) > 1 and (not covered or large or len(group) >= COVERED):
                yield group


def _full(fragment: Fragment) -> bool:
    return fragment.bytes is None or fragment.bytes >= FULL_BYTES


def _parts(run: Sequence[Fragment]) -> Iterator[list[Fragment]]:
    """Neighbours in parts of at most ``GROUP_BYTES``."""
    part: list[Fragment] = []
    total = 0
    for one in run:
        size = one.bytes or 0
        if part and total + size > GROUP_BYTES:
            yield part
            part, total = [], 0
        part.append(one)
        total += size
    if part:
        yield part
