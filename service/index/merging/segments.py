"""Which segments of an index are merged with new rows."""

from __future__ import annotations

from collections.abc import Sequence

# A segment is merged with newer rows when it has at most so many times their number.
RATIO = 4


def newest(segments: Sequence[int], rows: int, few: int) -> int:
    """How many of the newest segments of an index to merge with new rows.

    Lance itself merges them with the newest segment. An index that was built at once has only that
    one, so each maintenance would write all indexes again: 190 MB for a million documents
    (docs/explanation/experiments/scale.md, "Indexes of a million documents"). Here a row is rarely
    written more often than ``RATIO`` times for each factor of ``RATIO`` + 1 in size, as in a
    log-structured merge tree. Each segment costs every search a millisecond; a million documents
    have at most five.

    Args:
        segments: number of rows of each segment, the oldest first.
        rows: number of rows that no segment covers.
        few: fewer new rows count as this many, so segments of up to ``RATIO`` times as many rows
            are always merged.
    """
    newer = rows
    merged = 0
    for held in reversed(segments):
        if held > RATIO * max(newer, few):
            break
        newer += held
        merged += 1
    return merged
