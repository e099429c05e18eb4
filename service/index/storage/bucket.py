"""An object store as the place of indexes: its probe, its identity and its faults."""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from service.errors import StoreError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = structlog.get_logger("docsplit.index")

# the file or object that names a store
NAME = "docsplit-store.json"
_FORMAT = 1

# an object below the prefix of index_path with a random end; the probe removes it
PROBE = "docsplit-probe"
# seconds in which a connection must be open
_CONNECT_SECONDS = 3
_RETRIES = 2
# seconds after which a client may repeat a request
_RETRY_AFTER = 5

_REASONS = {
    "unsafe": "the object store of index_path lets two writers create the same object, so commits "
    "could overwrite each other: it must refuse the second PutObject with If-None-Match: *. Use a "
    "bucket and a store that support conditional writes (docs/how-to/object-storage.md)",
    "unsupported": "the object store of index_path does not know conditional writes (PutObject "
    "with If-None-Match: *), which keep commits apart: use one that does "
    "(docs/how-to/object-storage.md)",
    "denied": "the object store of index_path refuses the credentials, or they lack a right on the "
    "bucket: check the AWS_* variables, the role and the policy of the bucket",
    "gone": "the bucket of index_path does not exist: create it, or correct index_path, AWS_REGION "
    "and AWS_ENDPOINT",
    "unreachable": "the object store of index_path does not answer: try again later. It is "
    "unknown whether a write that got this answer took effect: repeat it, or read the document",
    "unusable": "the object store of index_path refuses the service's requests: its log has the "
    "reason; check AWS_REGION, the credentials, and AWS_ENDPOINT, which needs AWS_ALLOW_HTTP=true "
    "with http://",
}
_EMPTIED = (
    "the store at index_path is gone, or another one is in its place: restore the objects of the "
    "bucket, or restart the service to use what is there now"
)
# LanceDB and obstore have no types for most of these errors. The first pattern that fits counts.
_ERRORS = {
    "gone": "<Code>(NoSuchBucket|InvalidBucketName)",
    "unsupported": "status code: 501",
    # without other credentials, the client asks the virtual machine for those of its role
    "denied": "status code: 40[13]|Failed to get AWS credentials|http://169[.]254[.]169[.]254/",
    "unreachable": "error sending request|error decoding response body|operation timed out"
    "|status code: (429|5..)",
}
_OF_OBJECT_STORE = re.compile("Generic (S3|HTTP client|Config) error|Error performing [A-Z]+ http")


class Bucket:
    """The bucket and the prefix of a store. All calls block.

    The client is the one in LanceDB, with the same ``AWS_*`` variables.

    Args:
        uri: ``s3://bucket/prefix``.
        timeout: seconds that one request may take.
    """

    def __init__(self, uri: str, timeout: float) -> None:
        self._uri = uri
        self._milliseconds = max(int(timeout * 1000), 1)
        # of the store that this process uses; None for one that is only readable and has none
        self._identity: bytes | None = None
        self._client: ObjectStore | None = None

    @property
    def options(self) -> dict[str, str]:
        """LanceDB's options, so that its requests end in time."""
        return {
            "timeout": f"{self._milliseconds}ms",
            "connect_timeout": f"{_CONNECT_SECONDS}s",
            "client_max_retries": str(_RETRIES),
            "client_retry_timeout": str(-(-self._milliseconds // 1000)),
        }

    def claim(self) -> None:
        """Check that only one of two writers can create an object, and find or name the store.

        LanceDB's commits rely on this. Without it, commits of two processes overwrite each other.
        Credentials that can only read are accepted.

        Raises:
            StoreError: both can, the store does not know the condition, the bucket cannot be used,
                or the store that this process has used is gone.
        """
        key = f"{PROBE}-{uuid.uuid4().hex}"
        try:
            created = self._created(key)
        except Exception as error:
            reason = reason_of(error) or "unusable"
            if reason == "denied" and self._readable():
                log.warning("store_read_only", cause=cause(error))
                self.look()
                return
            raise _fault(reason) from error
        # none has if the store wrote an object, its answer was lost, and the second attempt of the
        # same writer was refused
        if created > 1:
            raise _fault("unsafe")
        if self._identity is None:
            self._provide()
        self.look()

    def look(self) -> None:
        """Raise StoreError if the store is gone, another is in its place, or it cannot be read."""
        held = self._read()
        if self._identity is None:
            self._identity = held
        elif held != self._identity:
            raise _fault("gone", _EMPTIED)

    def holds_objects(self) -> bool:
        """Whether there is anything below the prefix, apart from the identity.

        Raises:
            StoreError: the bucket cannot be read.
        """
        import obstore

        try:
            found = obstore.list_with_delimiter(self._own())
        except Exception as error:
            raise _fault(reason_of(error) or "unusable") from error
        objects = [one for one in found["objects"] if one["path"] != NAME]
        return bool(objects or found["common_prefixes"])

    def _provide(self) -> None:
        """Give a store an identity, unless it has one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        made = content(uuid.uuid4().hex).encode()
        try:
            obstore.put(self._own(), NAME, made, mode="create")
        except AlreadyExistsError:
            return
        except Exception as error:
            raise _fault(reason_of(error) or "unusable") from error

    def _read(self) -> bytes | None:
        """The identity of the store; None if it has none."""
        import obstore

        try:
            return bytes(obstore.get(self._own(), NAME).bytes())
        except Exception as error:
            reason = reason_of(error)
            if isinstance(error, FileNotFoundError) and reason is None:
                return None
            raise _fault(reason or "unusable") from error

    def _created(self, key: str) -> int:
        """How many of two writers created an object at the same time."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        store = self._own()

        def create(content: bytes) -> bool:
            try:
                obstore.put(store, key, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(2, "probe") as writers:
            created = sum(writers.map(create, (b"one", b"two")))
        with suppress(Exception):
            obstore.delete(store, key)
        return created

    def _readable(self) -> bool:
        try:
            self.holds_objects()
        except StoreError:
            return False
        return True

    def objects(self, uri: str) -> ObjectStore:
        """A client for the objects below a prefix of the bucket."""
        from obstore.store import from_url

        options: Any = {
            "timeout": f"{self._milliseconds}ms",
            "connect_timeout": f"{_CONNECT_SECONDS}s",
        }
        # with options of its own, the client ignores these variables
        for name in ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_excludes"):
            value = os.environ.get(f"AWS_{name.upper()}")
            if value is not None:
                options[name] = value
        retries: Any = {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(milliseconds=self._milliseconds),
        }
        return from_url(uri, client_options=options, retry_config=retries)

    def _own(self) -> ObjectStore:
        if self._client is None:
            self._client = self.objects(self._uri)
        return self._client


def reason_of(error: BaseException) -> str | None:
    """The fault of an object store behind an error, in one word; None for other errors."""
    said = str(error)
    if not _OF_OBJECT_STORE.search(said):
        return None
    return next((reason for reason, form in _ERRORS.items() if re.search(form, said)), None)


def unreachable(error: BaseException) -> bool:
    """Whether an object store did not answer, so that a later attempt may succeed."""
    reason = error.reason if isinstance(error, StoreError) else reason_of(error)
    return reason == "unreachable"


def fault(error: BaseException) -> StoreError | None:
    """The error of a request to an object store as one for users; None for other errors."""
    reason = reason_of(error)
    return None if reason is None else _fault(reason)


def cause(error: BaseException | None) -> str | None:
    """What an object store said, for the log."""
    # obstore adds pages of its internal state
    return None if error is None else str(error).split("Debug source")[0].strip()[:500]


def _fault(reason: str, said: str | None = None) -> StoreError:
    headers = {"retry-after": str(_RETRY_AFTER)}
    return StoreError(said or _REASONS[reason], reason, headers=headers)


def content(name: str) -> str:
    """What the file of an identity holds."""
    held = {"id": name, "format": _FORMAT}
    return json.dumps(held | {"checksum": checksum_of(held)}) + "\n"


def checksum_of(held: dict[str, Any]) -> str:
    """The checksum of an identity."""
    return f"{zlib.crc32(json.dumps([held.get('id'), held.get('format')]).encode()):08x}"
