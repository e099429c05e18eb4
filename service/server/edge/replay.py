"""Repeat a message of a request that was already read, for the next reader."""

from starlette.types import Message, Receive


def replaying(first: Message, receive: Receive) -> Receive:
    """A ``receive`` that returns ``first`` once, and then the messages that follow."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return first

    return replay
