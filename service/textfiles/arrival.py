"""A file of texts while it arrives: its blocks go to the storage of the indexes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service import executors
from service.errors import EmptyError, TooLargeError

if TYPE_CHECKING:
    from service.textfiles.blocks import Texts
    from service.textfiles.progress import Progress
    from service.textfiles.room import Room
    from service.textfiles.tables import Block, Place, Tables

# blocks of one write
_MOST_BLOCKS, _MOST_BYTES = 32, 1 << 20
# texts of one file
MOST_TEXTS = 1_000_000


class Arrival:
    """A file that arrives.

    Args:
        tables: of all jobs.
        room: bounds what they hold.
        owner: name of the client.
        place: of the new job.
        progress: of the new job; grows with the file.

    Attributes:
        begun: whether a job has the texts now.
    """

    def __init__(
        self, tables: Tables, room: Room, owner: str, place: Place, progress: Progress
    ) -> None:
        self.owner = owner
        self.place = place
        self.progress = progress
        self.begun = False
        self._tables = tables
        self._room = room
        self._waiting: list[Block] = []
        self._waiting_bytes = 0

    async def add(self, block: Texts) -> None:
        """Store the next texts.

        Raises:
            TooLargeError: the file has too many.
            OverloadedError: there is no room for their vectors.
        """
        from service.textfiles.blocks import packed
        from service.textfiles.tables import Block

        progress, rows = self.progress, len(block.texts)
        if progress.texts + rows > MOST_TEXTS:
            raise TooLargeError(
                f"the file has more than {MOST_TEXTS:,} texts, which is the limit: split it",
                headers={"connection": "close"},
            )
        data = await executors.STORE.run(packed, block)
        amount = len(data) + progress.vector_bytes(rows)
        self._room.take(self.owner, amount)
        progress.bytes += amount
        self._waiting.append(Block(progress.blocks, rows, 0, data))
        self._waiting_bytes += len(data)
        progress.blocks += 1
        progress.texts += rows
        if len(self._waiting) == _MOST_BLOCKS or self._waiting_bytes >= _MOST_BYTES:
            await self._write()

    async def end(self) -> None:
        """Return when all texts are durable.

        Raises:
            EmptyError: there is none.
        """
        if not self.progress.texts:
            raise EmptyError("the file has no text: send at least one line or row")
        await self._write()
        await self._tables.sync()

    async def _write(self) -> None:
        if self._waiting:
            await self._tables.add_texts(self.place, self._waiting)
            self._waiting, self._waiting_bytes = [], 0
