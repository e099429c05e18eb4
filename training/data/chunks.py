"""Choose the rows that are encoded together."""

from collections.abc import Sequence


def plan_chunks(lengths: Sequence[int], budget: int, processes: int) -> list[list[int]]:
    """Group rows of similar length into chunks of about ``budget`` tokens.

    The number of chunks is a multiple of ``processes`` if there are enough rows. The chunks have
    similar numbers of tokens, so processes that each take an equal number finish together.

    Args:
        lengths: tokens of each row.
        budget: tokens of a chunk.
        processes: number of processes that share the chunks.

    Returns:
        Lists of row numbers, the longest rows first; every row is in one of them.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    total = sum(lengths)
    count = max(1, -(-total // budget))
    count = -(-count // processes) * processes
    if count >= len(lengths):
        return [[row] for row in order]
    chunks: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for row in order:
        # The middle of a row decides its chunk.
        middle = before + lengths[row] / 2
        chunks[min(count - 1, int(middle * count / total))].append(row)
        before += lengths[row]
    return [chunk for chunk in chunks if chunk]
