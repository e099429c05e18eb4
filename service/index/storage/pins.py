"""Which former versions of a table stay: those that were current of late, and pinned ones.

Pins keep a version from removal while a process reads it for a long time. A pin is a Lance tag
whose name ends with the time at which it expires, so the pin of a killed process ends by itself.
LanceDB never removes a tagged version. It refuses every cleanup that would reach one, so
maintenance removes no versions while a pin holds.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime, timedelta

from lancedb.table import AsyncTable

# readers of an older version have ended by then: above the default of max_request_timeout
KEEP_VERSIONS = timedelta(minutes=15)
# an interrupted reader has this long to continue
SECONDS = 86_400
# an age that no version has
NEVER = timedelta(days=36_500)
# Time for what LanceDB does between the call and the removal, as a share of the time that versions
# are kept: a minute of 15.
_SLACK = 15
_NAME = re.compile(r"docsplit-pin-([0-9a-f]+)-(\d+)")


async def older_than(table: AsyncTable, keep: timedelta) -> timedelta:
    """The age above which Lance may remove versions, so that each stays while readers need it.

    Lance compares when a version was committed. But a version that was committed long ago may have
    been current until a moment ago, and readers or a backup still have it. So the newest version of
    at least the age ``keep`` stays, and this age lies above its own.

    Args:
        table: whose versions are removed at once after this call.
        keep: how long a version stays after the next one has replaced it.
    """
    found = await table.list_versions()  # type: ignore[no-untyped-call]
    now = time.time()
    old = now - keep.total_seconds()
    # The library gives local times, of which an hour comes twice when summer ends. Taken as the
    # later one, no version seems to be older than it is; as the earlier one, none younger.
    first = [_time(held["timestamp"], fold=0) for held in found]
    last = [_time(held["timestamp"], fold=1) for held in found]
    current = max((a for a, b in zip(first, last, strict=True) if b <= old), default=None)
    if current is None:
        return NEVER
    gone = [b for b in last if b <= current - keep.total_seconds() / _SLACK]
    # Hardly younger than the newest version that goes, so a removal that begins late removes no
    # other one. The library rounds to milliseconds.
    return timedelta(seconds=max(now - max(gone) - 0.001, 0.001)) if gone else NEVER


def _time(local: datetime, fold: int) -> float:
    return local.replace(fold=fold).timestamp()


async def hold(table: AsyncTable, owner: str, version: int | None = None) -> int:
    """Pin a version of a table, or prolong a pin.

    Args:
        table: not checked out at another version.
        owner: hex digits that name the reader.
        version: to pin; the newest one by default.

    Returns:
        The pinned version.

    Raises:
        RuntimeError, ValueError: the version is gone, or the store is not writable.
    """
    former = [tag for tag, of, _ in await _all(table) if of == owner]
    tag = f"docsplit-pin-{owner}-{int(time.time()) + SECONDS}"
    if tag not in former:
        pinned = version or await table.version()
        await table.tags.create(tag, pinned)
        if version is None and (newest := await table.version()) != pinned:
            # a cleanup that began before the tag may remove the former version, but no new one
            await table.tags.update(tag, newest)
    for other in former:
        if other != tag:
            await table.tags.delete(other)
    return await table.tags.get_version(tag)


async def release(table: AsyncTable, owner: str | None = None) -> None:
    """Remove the pins of a reader, or of all readers."""
    for tag, of, _ in await _all(table):
        if owner in (None, of):
            await table.tags.delete(tag)


async def held(table: AsyncTable) -> bool:
    """Whether any pin holds; removes expired ones."""
    found = False
    for tag, _, until in await _all(table):
        if until > time.time():
            found = True
        else:
            # another process may have removed it
            with suppress(RuntimeError, ValueError):
                await table.tags.delete(tag)
    return found


async def _all(table: AsyncTable) -> list[tuple[str, str, int]]:
    """Names, owners and ends of all pins."""
    named = ((tag, _NAME.fullmatch(tag)) for tag in await table.tags.list())
    return [(tag, match[1], int(match[2])) for tag, match in named if match is not None]
