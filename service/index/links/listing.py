"""The links of one document, in both directions, those that users gave and those found in texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from lancedb.query import ColumnOrdering

from service.index import reuse, sql
from service.index.documents import Index
from service.index.links.found import FoundLinks, Link
from service.index.query import listing
from service.index.query.reading import Direction
from service.index.rows import checksums
from service.index.rows.checksums import Part

# citing documents whose links are in memory at a time; each has up to 10,000
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A linked document.

    Attributes:
        id: of the other document.
        direction: whether the document cites the other one, or is cited by it.
        title: of the other document; None if it has none or does not exist.
        exists: whether the index has the other document.
        given: whether a user gave the link.
        found: the places in the text of the citing document; None if there are none.
    """

    id: str
    direction: Direction
    title: str | None
    exists: bool
    given: bool
    found: Link | None


@dataclass(frozen=True, slots=True)
class Page:
    """Links in the order of direction and id.

    Attributes:
        next: key of the last entry; None on the last page.
    """

    entries: list[Entry]
    next: tuple[Direction, str] | None


async def page(
    index: Index, held: FoundLinks, document: str, after: tuple[str, str], limit: int
) -> Page:
    """Links of a document that come after a key; found ones of changed texts are left out.

    Args:
        index: contains the document.
        held: the found links.
        document: its id.
        after: direction and id, or two empty strings for the first page.
        limit: of links.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the links of the document do not match their checksum.
    """
    own = await index.one(document, Part.LINKS)
    cited: list[str] = own["links"][0].as_py()
    uid = index.identity.uid
    found: dict[tuple[str, str], Link] = {
        ("cites", link.cited): link for link in await held.citing(uid, [document])
    }
    if after[0] != "cites":
        to_it = await held.cited(uid, [document])
        found |= {("cited_by", link.citing): link for link in to_it}
    entries: list[Entry] = []
    last, wanted = after, limit + 1
    while True:
        given = {("cites", name) for name in cited}
        if last[0] != "cites":
            given |= {
                ("cited_by", name) for name in await _citing(index, document, last[1], wanted)
            }
        keys = sorted(key for key in {*given, *found} if key > last and key[1] != document)
        # beyond these, a citing document that was not read may come first
        chunk = keys[:wanted]
        names = sorted({name for _, name in chunk})
        heads = await listing.heads(index, names)
        known = await reuse.digests(index, [*names, document])
        digests = {name: digest for name, (digest, _) in known.items()}
        for key in chunk:
            if len(entries) == limit:
                return Page(entries, (entries[-1].direction, entries[-1].id))
            link = _current(found.get(key), digests)
            there = key[1] in digests
            if key in given or (link is not None and there):
                head = heads.get(key[1])
                title = head.title if head is not None else None
                direction: Direction = "cites" if key[0] == "cites" else "cited_by"
                entries.append(Entry(key[1], direction, title, there, key in given, link))
        if len(chunk) < wanted:
            return Page(entries, None)
        last = chunk[-1]


def _current(link: Link | None, digests: Mapping[str, str]) -> Link | None:
    """The link, unless its text has changed since it was found."""
    if link is None or digests.get(link.citing) != link.digest:
        return None
    return link


async def _citing(index: Index, document: str, after: str, most: int) -> list[str]:
    """The first other documents after an id whose users say that they cite a document.

    Damaged ones are left out.
    """
    cites = sql.every(sql.LIVE, sql.overlaps("links", [document]))
    other = sql.compare("id", "<>", document)
    names: list[str] = []
    while True:
        where = sql.every(cites, other, sql.compare("id", ">", after))
        query = index.table.query().where(where).order_by([ColumnOrdering(column_name="id")])
        wanted = most - len(names)
        ids = (await query.select(["id"]).limit(wanted).to_arrow())["id"].to_pylist()
        if not ids:
            return names
        query = index.table.query().where(sql.every(cites, sql.among("id", ids)))
        query = query.select(checksums.columns(Part.LINKS))
        sound: list[str] = []
        async for batch in await query.to_batches(max_batch_length=_BATCH):
            rows = await index.sound(pa.Table.from_batches([batch]), Part.LINKS)
            sound += rows["id"].to_pylist()
        names += sorted(sound)
        if len(ids) < wanted or len(names) == most:
            return names
        after = ids[-1]
