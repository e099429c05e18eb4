"""A message of a request that was read already, for who reads it next."""

from __future__ import annotations

from starlette.types import Message, Receive


def replaying(first: Message, receive: Receive) -> Receive:
    """``receive`` that gives ``first`` once before what is still to come."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return first

    return replay
