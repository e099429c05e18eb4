"""Finds the links that stand in the texts of an index."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
import structlog

from docsplit.ranking.forms import key
from docsplit.ranking.references import Named, Reference, References, Rule
from service import executors
from service.errors import TooLargeError
from service.index.documents import LIVE, Index
from service.index.links import found
from service.index.links.found import Link, Report
from service.index.query import listing
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts
from service.index.rows.fields import TITLE_CHARACTERS

log = structlog.get_logger("docsplit.index")

# titles with their metadata that are read at a time, and texts that one step reads
_HEADS = 256
_TEXTS = 16
_MUCH_BYTES = 4_000_000
# limit of the links of one document, as of those that a user gives
MOST_OF_ONE = 10_000
# limit of the links of an index, which are in memory during a search
MOST_LINKS = 1_000_000


@dataclass(frozen=True, slots=True)
class Names:
    """What to look for.

    Attributes:
        ids: whether ids are identifiers.
        titles: whether titles count.
        fields: metadata that have identifiers, such as a DOI.
        rules: for further names.
    """

    ids: bool = True
    titles: bool = True
    fields: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


async def find(index: Index, names: Names) -> tuple[pa.Table, Report]:
    """The links between documents of an index that stand in their texts.

    It reads every text once. Memory holds the names, some 300 bytes for each token, the links, and
    a few texts at a time. It leaves out damaged documents.

    Returns:
        Rows for ``FoundLinks.replace``, and what the search read and found.

    Raises:
        TooLargeError: there are more than ``MOST_LINKS``.
    """
    started = time.monotonic()
    named = await _named(index, names.fields)
    references = await executors.STORE.run(
        lambda: References(named, names.rules, ids=names.ids, titles=names.titles)
    )
    pieces, documents, links, places, cut = [found.rows([])], 0, 0, 0, 0
    async for part in listing.every(index, Part.TEXT):
        documents += part.num_rows
        # a thread must not be busy with many long texts when the request has ended
        step = 1 if part.nbytes > _MUCH_BYTES else _TEXTS
        for start in range(0, part.num_rows, step):
            texts_of = part.slice(start, step)
            own = await executors.WORDS.run(_links, texts_of, references, named)
            links += own.rows.num_rows
            places += own.places
            cut += own.cut
            if links > MOST_LINKS:
                raise TooLargeError(
                    f"the texts of this index have more than {MOST_LINKS} links: leave out titles "
                    "or rules"
                )
            pieces.append(own.rows)
    report = Report(
        documents,
        references.names,
        references.ambiguous,
        references.left_out,
        links,
        places,
        cut,
        time.monotonic() - started,
    )
    log.info("links_found", table=index.table.name, documents=documents, links=links)
    return pa.concat_tables(pieces), report


async def _named(index: Index, fields: Sequence[str]) -> list[Named]:
    named: list[Named] = []
    query = index.table.query().where(LIVE).select(checksums.columns(Part.HEAD))
    async for batch in await query.to_batches(max_batch_length=_HEADS):
        part = await index.sound(pa.Table.from_batches([batch]), Part.HEAD)
        named += await executors.STORE.run(lambda: list(_of_heads(part, fields)))  # noqa: B023
    return named


def _of_heads(part: pa.Table, fields: Sequence[str]) -> Iterator[Named]:
    columns = (part[name].to_pylist() for name in ("id", "title", "metadata"))
    for name, title, metadata in zip(*columns, strict=True):
        held = orjson.loads(metadata) if fields else {}
        values = tuple(one for field in fields for one in _identifiers(field, held.get(field)))
        yield Named(name, (title or "")[:TITLE_CHARACTERS], values)


def _identifiers(field: str, value: object) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str | int) and not isinstance(one, bool):
            # a number such as a PMID says nothing without the name of the field
            yield (key(f"{field} {one}") if str(one).isdigit() else None) or str(one)


@dataclass(frozen=True, slots=True)
class _Own:
    """The links in some texts; ``cut`` of these have more than are kept."""

    rows: pa.Table
    places: int
    cut: int


def _links(part: pa.Table, references: References, named: Sequence[Named]) -> _Own:
    links: list[Link] = []
    places, cut = 0, 0
    columns = (texts(part[name]) for name in ("id", "digest", "text"))
    for name, digest, text in zip(*columns, strict=True):
        inside, much = references.find(text, name)
        own, more = _of_text(name, checksums.content(digest), inside, named)
        links += own
        places += len(inside)
        cut += much or more
    return _Own(found.rows(links), places, cut)


def _of_text(
    citing: str, digest: str, references: Sequence[Reference], named: Sequence[Named]
) -> tuple[list[Link], bool]:
    """The links of a text, and whether it has more than are kept."""
    links: dict[int, Link] = {}
    cut = False
    for one in references:
        if one.cited not in links and len(links) == MOST_OF_ONE:
            cut = True
            continue
        link = links.setdefault(one.cited, Link(citing, named[one.cited].id, digest))
        link.add(one)
    return list(links.values()), cut
