"""Who may still add to a bounded store that clients share."""

from __future__ import annotations


def excess(capacity: int, total: int, held: int, amount: int) -> int:
    """How much is to leave before a client may add ``amount``; it may when this is not above 0.

    A client may hold as much as stays free beside all that is held (dynamic threshold with
    factor 1; Choudhury & Hahne, "Dynamic queue length thresholds for shared-memory packet
    switches", IEEE/ACM Transactions on Networking 6(2), 1998). Alone it may fill half, n greedy
    clients 1 / (n + 1) each, so that there is always room for one who comes with nothing held,
    and never is ``capacity`` exceeded.

    Args:
        capacity: of the store.
        total: what all clients hold.
        held: what this one holds of it.
        amount: what it wants to add.
    """
    free = capacity - total - amount
    return held + amount - free
