"""Who shares entries of the cache with whom."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from service.embedding.batching import clients


class Tenants:
    """Gives all clients the same entries, or each its own.

    A client who shares entries with others can learn, by ``x-cache`` or by the time of an answer,
    whether one of them sent a text that he guesses.

    Args:
        separate: whether each client has entries of its own.
        aliases: what stands for a client in the names of entries, where it is not the client's
            name.
    """

    def __init__(self, *, separate: bool, aliases: Mapping[str, bytes] | None = None) -> None:
        self._separate = separate
        self._aliases = aliases or {}

    @property
    def current(self) -> bytes:
        """16 bytes for the client that the running task works for; none where all share."""
        if not self._separate:
            return b""
        name = clients.current().name
        alias = self._aliases.get(name) or b"name " + name.encode()
        return hashlib.blake2b(alias, digest_size=16, person=b"tenant").digest()

    def own(self, keys: Sequence[bytes]) -> list[bytes]:
        """Names of the current client's entries, 16 bytes each.

        Args:
            keys: ``window_key`` of each window; may repeat.
        """
        tenant = self.current
        if not tenant:
            return list(keys)
        return [hashlib.blake2b(key, key=tenant, digest_size=16).digest() for key in keys]


SHARED = Tenants(separate=False)
