"""Cut a body that arrives in pieces into lines."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

from service.errors import ServiceError

_BLANK = b" \t\r"


class Splitter:
    """Collects the bytes of one line at a time.

    Args:
        check: receives the size of the line that arrives; the error that it raises takes the
            line's place, and the rest of the line is skipped.
    """

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self._rest = bytearray()
        self._skipped = 0
        self._is_first = True

    @property
    def incomplete(self) -> int:
        """Bytes of the line that has not ended yet."""
        return self._skipped or len(self._rest)

    def feed(self, piece: bytes) -> Iterator[bytes | ServiceError]:
        """The lines that end in this piece, and errors in their places.

        Blank lines are left out, and a byte order mark.
        """
        first, *others = piece.split(b"\n")
        yield from self._add(first)
        if not others:
            return
        yield from self.end()
        *whole, last = others
        for line in whole:
            if line:
                yield from self._add(line)
                yield from self.end()
        yield from self._add(last)

    def end(self) -> Iterator[bytes]:
        """The last line, if the body ends without a line break."""
        line, self._rest, self._skipped = self._rest.strip(_BLANK), bytearray(), 0
        if self._is_first:
            # as Windows' programs write it, and docsplit-index reads it
            line, self._is_first = line.removeprefix(BOM_UTF8), False
        if line:
            yield bytes(line)

    def _add(self, part: bytes) -> Iterator[ServiceError]:
        if self._skipped:
            self._skipped += len(part)
            return
        try:
            self._check(len(self._rest) + len(part))
        except ServiceError as error:
            self._skipped = len(self._rest) + len(part)
            self._rest = bytearray()
            yield error
        else:
            self._rest += part
