"""Decide whether a client may add to a bounded store that clients share."""


def overflow(capacity: int, total: int, held: int, amount: int) -> int:
    """Amount that must leave before a client may add ``amount``; 0 or less if it may add it now.

    A client may hold as much as the store has free (dynamic threshold with factor 1; Choudhury &
    Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
    Transactions on Networking 6(2), 1998). A single client may fill half, and n greedy clients
    1 / (n + 1) each. There is always room for a client that holds nothing, and the total never
    exceeds ``capacity``.

    Args:
        capacity: size of the store.
        total: amount that all clients hold.
        held: amount that this client holds.
        amount: amount that it wants to add.
    """
    free = capacity - total - amount
    return held + amount - free
