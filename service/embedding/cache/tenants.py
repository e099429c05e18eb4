"""Decide which clients share entries of the cache."""

import hashlib
from collections.abc import Mapping, Sequence

from service.embedding.batching import clients


class Tenants:
    """Gives all clients the same entries, or each client its own.

    A client that shares entries with others can check a guess: ``x-cache`` or the time of an
    answer reveals whether one of them sent the same text.

    Args:
        separate: whether each client has its own entries.
        aliases: stand for clients in the names of entries; a client without an alias appears by its
            own name.
    """

    def __init__(self, *, separate: bool, aliases: Mapping[str, bytes] | None = None) -> None:
        self._separate = separate
        self._aliases = aliases or {}

    @property
    def current(self) -> bytes:
        """16 bytes for the client of the running task; empty if all clients share entries."""
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
