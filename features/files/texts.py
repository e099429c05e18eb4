"""Reads one uploaded file into text, while its request waits."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

from docsplit.extraction.content import Content, Limits, StartError, UnreadableError
from docsplit.extraction.kinds import OLD, READERS, SOURCES
from docsplit.extraction.reading import Reader
from features.files.spool import Upload
from service import executors
from service.errors import InvalidError, UnavailableError, errno_name

LIMITS = Limits(seconds=20, pages=2000, characters=4_000_000, unpacked=1 << 28, scans=20)
_KINDS = (*READERS, *SOURCES)
# the process that reads files ends after so long without one
_IDLE_SECONDS = 60.0
_REASON_CHARACTERS = 300
# seconds between attempts to end a reading
_INTERVAL = 0.1


class Texts:
    """Reads files, one at a time.

    Args:
        folder: of temporary files; None takes the system's.
        ocr: languages of the text in scans.
    """

    def __init__(self, folder: Path | None, ocr: str = "auto") -> None:
        self._folder = folder
        self._ocr = ocr
        self._reader = Reader(LIMITS, folder, ocr)
        self._idle: asyncio.TimerHandle | None = None

    async def read(self, upload: Upload) -> Content:
        """The content of the only file of an upload; no other call may run at the same time.

        Raises:
            InvalidError: the file cannot be read; the message says why.
            UnavailableError: no file can be read.
        """
        kind = PurePosixPath(upload.names[0]).suffix.lower()
        if kind not in (*_KINDS, *OLD):
            raise InvalidError(
                f"file: the end of its name must be one of {', '.join(_KINDS)}; send archives to "
                "POST /indexes/{name}/files",
                "file",
            )
        if self._idle is not None:
            self._idle.cancel()
        ended = False
        try:
            content = await executors.TEXTS.run(self._content, upload, kind)
            ended = True
        except UnreadableError as error:
            ended = True
            raise InvalidError(f"file: {error}"[:_REASON_CHARACTERS], "file") from error
        except StartError as error:
            raise UnavailableError(f"no file can be read here: {error}") from error
        except OSError as error:
            raise UnavailableError(
                f"the disk for uploaded files fails ({errno_name(error)}): tell the operator"
            ) from error
        finally:
            if ended:
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(_IDLE_SECONDS, executors.TEXTS.submit, self._end)
            else:
                await self.close()
        return content

    async def close(self) -> None:
        """End the reading, and the process that reads."""
        if self._idle is not None:
            self._idle.cancel()
        # after the interrupted call, in the same thread
        closing = asyncio.ensure_future(executors.TEXTS.run(self._end))
        while not closing.done():
            # the process may start only now
            self._reader.interrupt()
            await asyncio.wait([closing], timeout=_INTERVAL)

    def _end(self) -> None:
        self._reader.close()

    def _content(self, upload: Upload, kind: str) -> Content:
        if upload.folder != self._folder:
            # the usual folder fails, or works again
            self._reader.close()
            self._folder = upload.folder
            self._reader = Reader(LIMITS, upload.folder, self._ocr)
        with upload.read(0) as source:
            [(_, outcome)] = self._reader.read(kind, source)
        if isinstance(outcome, UnreadableError):
            raise outcome
        if not outcome.text.strip():
            raise UnreadableError("it holds no text")
        return outcome
