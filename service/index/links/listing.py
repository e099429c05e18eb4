"""The links of one document, in both directions, those that users gave and those found in texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lancedb.expr import lit

from service.index import reuse
from service.index.documents import Index
from service.index.links.found import FoundLinks, Link
from service.index.query import listing
from service.index.query.reading import Direction
from service.index.rows import checksums
from service.index.rows.checksums import Part


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
    uid = index.identity.uid
    given: dict[tuple[Direction, str], bool] = {
        **{("cites", name): True for name in own["links"][0].as_py()},
        **{("cited_by", name): True for name in await _citing(index, document)},
    }
    found: dict[tuple[Direction, str], Link] = {
        **{("cites", link.cited): link for link in await held.citing(uid, [document])},
        **{("cited_by", link.citing): link for link in await held.cited(uid, [document])},
    }
    keys = sorted(key for key in {**given, **found} if key > after and key[1] != document)
    entries: list[Entry] = []
    for start in range(0, len(keys), limit):
        chunk = keys[start : start + limit]
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
                entries.append(Entry(key[1], key[0], title, there, key in given, link))
    return Page(entries, None)


def _current(link: Link | None, digests: Mapping[str, str]) -> Link | None:
    """The link, unless its text has changed since it was found."""
    if link is None or digests.get(link.citing) != link.digest:
        return None
    return link


async def _citing(index: Index, document: str) -> Sequence[str]:
    """The documents whose users say that they cite a document."""
    # the expression builder has no lists; it quotes every id
    where = f"deleted = false AND array_has_any(links, [{lit(document).to_sql()}])"
    query = index.table.query().where(where).select(checksums.columns(Part.LINKS))
    found: pa.Table = await index.sound(await query.to_arrow(), Part.LINKS)
    names: list[str] = found["id"].to_pylist()
    return names
