"""Takes the files out of a body of the type multipart/form-data, while it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from features.files.spool import Upload
from service.errors import InvalidError, MalformedError, MediaTypeError, TooLargeError
from service.index.rows.fields import ID_CHARACTERS, wrong_id

# files of one request
MOST_FILES = 1000
_MALFORMED = "the body could not be read: send multipart/form-data as its content-type says"


class _Parts:
    """Parses a body in pieces: a text begins a file of that name, bytes belong to the last file."""

    def __init__(self, content_type: str, most_files: int) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise MediaTypeError("content-type: send multipart/form-data with a boundary")
        self.whole = False
        self._found: list[str | bytearray] = []
        self._files = 0
        self._most = most_files
        self._field, self._value, self._disposition = b"", b"", b""
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._name,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise MediaTypeError("content-type: the boundary is too long") from error

    def feed(self, chunk: bytes) -> list[str | bytearray]:
        """What a piece of the body holds.

        Raises:
            MalformedError, InvalidError, TooLargeError: the body is no form of files.
        """
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise MalformedError(_MALFORMED) from error
        found, self._found = self._found, []
        return found

    def _begin(self) -> None:
        self._disposition = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field, self._value = b"", b""

    def _name(self) -> None:
        self._files += 1
        if self._files > self._most:
            what = "one file" if self._most == 1 else f"{self._most} files"
            raise TooLargeError(
                f"the form holds more than {what}, which is the limit: send several requests",
                headers={"connection": "close"},
            )
        given = parse_options_header(self._disposition)[1].get(b"filename", b"")
        # browsers, curl and Python's clients write it so in forms (HTML, "multipart form data")
        given = given.replace(b"%22", b'"')
        try:
            name = given.decode()
        except UnicodeDecodeError:
            name = ""
        if wrong_id(name):
            raise InvalidError(
                f"files: part {self._files} has no usable file name: send only files, and names in "
                f"UTF-8 with 1 to {ID_CHARACTERS} characters, none of them a control character, "
                "and not . or ..",
                "files",
            )
        self._found.append(name)

    def _data(self, data: bytes, start: int, end: int) -> None:
        # a parser of hostile data may find it byte by byte
        if self._found and isinstance(self._found[-1], bytearray):
            self._found[-1] += data[start:end]
        else:
            self._found.append(bytearray(data[start:end]))

    def _end(self) -> None:
        self.whole = True


def documented(field: str, files: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a form with one field."""
    form = {"type": "object", "properties": {field: files}, "required": [field]}
    content = {"multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


async def send_to(upload: Upload, request: Request, most_bytes: int, most_files: int) -> None:
    """Write the files of a request to an upload; raises like ``receive``."""
    headers = request.headers
    if (stated := headers.get("content-length", "")).isdecimal():
        upload.reserve(int(stated))
    kind = headers.get("content-type", "")
    await receive(request.stream(), kind, upload, most_bytes, most_files)


async def receive(
    body: AsyncIterator[bytes],
    content_type: str,
    upload: Upload,
    most_bytes: int,
    most_files: int = MOST_FILES,
) -> None:
    """Write the files of a body to an upload.

    Args:
        body: in pieces.
        upload: empty.
        most_files: in the body.

    Raises:
        MediaTypeError, MalformedError, InvalidError: the body is no form of files.
        TooLargeError: a file, or their number, exceeds its limit.
        OverloadedError, UnavailableError: there is no room on disk.
    """
    parts = _Parts(content_type, most_files)
    async for chunk in body:
        for part in parts.feed(chunk):
            if isinstance(part, str):
                upload.begin(part)
                continue
            await upload.write(part)
            if upload.last > most_bytes:
                raise TooLargeError(
                    f"files: file {len(upload.names)} has more than {most_bytes} bytes, which is "
                    "the limit (max_file_bytes): split it, or leave it out",
                    "files",
                    headers={"connection": "close"},
                )
    if not parts.whole:
        raise MalformedError(_MALFORMED)
    if not upload.names:
        raise InvalidError("files: the form holds no file: send at least one", "files")
    await upload.flush()
