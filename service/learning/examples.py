"""The examples of trainings: documents of indexes, stored examples and labels that people gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from docsplit.heads.examples import MOST_EXAMPLES, MOST_UNLABELLED, Examples, check, digest
from docsplit.windowing.pooling import Vectors
from service.errors import DamagedError, InvalidError, NotFoundError
from service.index import documents as stored_documents
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.vectors import vector_matrix
from service.learning.labels import Labelled

# ids in one query
CHUNK = 500
# characters of texts that are read at once, unless a single text has more
READ_CHARACTERS = 4_000_000
# limit of all texts that are stored with a classifier
MOST_CHARACTERS = 64_000_000


async def documents(
    index: Index,
    ids: Sequence[str],
    most: int = MOST_CHARACTERS,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[list[str], Vectors]:
    """Texts of documents and their unit vectors, float32 ``[ids, dimensions]``.

    Args:
        ids: each once.
        most: characters of all texts.
        reserve: called with the characters of some texts, before they are read.

    Raises:
        InvalidError: some are not in the index, or the texts are too large to store.
        DamagedError: a stored document does not match its checksums.
    """
    held, texts, vectors = await existing(index, ids, most, reserve)
    if len(held) < len(ids):
        known = {*held}
        first = next(place for place, name in enumerate(ids) if name not in known)
        raise InvalidError(
            f"ids: {len(ids) - len(held)} of {len(ids)} are not in the index, the first at "
            f"position {first}",
            "ids",
        )
    return texts, vectors


async def existing(
    index: Index,
    ids: Sequence[str],
    most: int = MOST_CHARACTERS,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[list[str], list[str], Vectors]:
    """Ids, texts and unit vectors of those documents that the index has, in the order of the ids.

    It leaves out a document that is deleted during the read. For the arguments and further errors
    see ``documents``.
    """
    names: list[str] = []
    texts: list[str] = []
    vectors = [np.zeros((0, index.schema.field("vector").type.list_size), dtype=np.float32)]
    size = 0
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        found = await named(index, chunk, [*checksums.columns(Part.VECTOR), "window_ends"])
        if (await index.sound(found, Part.VECTOR)).num_rows < found.num_rows:
            raise DamagedError
        rows = {name: row for row, name in enumerate(found["id"].to_pylist())}
        lengths = stored_documents.characters(found)
        more = sum(lengths.values())
        size += more
        if size > most:
            raise InvalidError(
                f"ids: their texts, which are stored with the classifier, hold more than "
                f"{MOST_CHARACTERS} characters: give fewer",
                "ids",
            )
        reserve(more)
        held = {name: text async for name, text in read(index, lengths, strict=True)}
        order = [name for name in chunk if name in held]
        names += order
        texts += [held[name] for name in order]
        if order:
            vectors.append(vector_matrix(found)[[rows[name] for name in order]])
    return names, texts, np.concatenate(vectors)


async def present(index: Index, ids: Sequence[str]) -> list[str]:
    """Those of the ids that the index has, in their order."""
    found: set[str] = set()
    for first in range(0, len(ids), CHUNK):
        found.update((await named(index, ids[first : first + CHUNK], ["id"]))["id"].to_pylist())
    return [name for name in ids if name in found]


async def named(index: Index, ids: Sequence[str], columns: list[str]) -> pa.Table:
    """Columns of the documents of these ids that exist, in no order."""
    return await index.select(stored_documents.named(ids), columns, len(ids))


async def read(
    index: Index, lengths: Mapping[str, int], *, strict: bool = False
) -> AsyncIterator[tuple[str, str]]:
    """Yield ids and texts of documents, a few at once to save memory.

    Args:
        lengths: of the texts, by id.
        strict: raise DamagedError if a text does not match its checksum; else leave it out.
    """
    for group in stored_documents.groups_by_size(lengths, READ_CHARACTERS):
        async with stored_documents.turn_of_size(sum(lengths[name] for name in group)):
            read = await named(index, group, checksums.columns(Part.TEXT))
            found = await index.sound(read, Part.TEXT)
            if strict and found.num_rows < read.num_rows:
                raise DamagedError
            texts = zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)
            for name, text in texts:
                yield name, text


async def unlabelled(index: Index) -> Vectors:
    """Unit vectors of a sample of an index's documents; always the same sample.

    Raises:
        InvalidError: the index is empty.
    """
    sampled = await index.sample(MOST_UNLABELLED)
    if rows := sampled["_rowid"].to_pylist():
        taken = index.table.take_row_ids(rows).select(checksums.columns(Part.VECTOR))
        held = vector_matrix(await index.sound(await taken.to_arrow(), Part.VECTOR))
        if len(held):
            return held
    raise InvalidError("unlabelled: that index holds no documents", "unlabelled")


@dataclass(frozen=True, slots=True)
class _Example:
    text: str
    labels: list[str]
    # by which a person labelled it
    index: str | None
    vector: Vectors | None = None
    # labels of a stored example of this text, which count again without the person's label
    replaced: list[str] | None = None

    @property
    def own(self) -> list[str] | None:
        """The labels of the stored example of this text; None if there is none."""
        return self.labels if self.index is None else self.replaced


async def gather(
    indexes: Indexes,
    stored: Examples | None,
    labelled: Sequence[Labelled],
    multi_label: bool | None = None,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[Examples, list[Vectors | None]]:
    """The examples of a training, and the vectors of those that an index has.

    - A document that its index no longer has is left out.
    - Of equal texts, the latest label counts. Any label counts before a stored example, which keeps
      its own labels: they count again once that label is removed.
    - A stored example that came from an index counts only once that index is gone: its labels may
      have changed since.
    - A classifier without examples gets the bundle of the first index.
    - Texts of indexes of other bundles come without vectors.

    Args:
        stored: of the classifier; None if it has none.
        labelled: in the order in which the documents got their labels.
        multi_label: of a classifier without examples; None: whether a document has several labels
            or none.
        reserve: called with the characters of some texts, before they are read.

    Raises:
        InvalidError: too few labels, too many examples, or too much text.
    """
    others = any(len(one.labels) != 1 for one in labelled)
    several = stored.multi_label if stored else others if multi_label is None else multi_label
    if others and not several:
        raise InvalidError(
            "labels: a document has several labels or none, but this classifier gives each "
            "document one: POST /classifiers/{name}/labels changes them",
            "labels",
        )
    aliases = await indexes.aliases.all()
    found = {digest(one.text): one for one in await _kept(indexes, stored, aliases)}
    latest: dict[bytes, float] = {}
    left = MOST_CHARACTERS
    model = None if stored is None else indexes.served.named(stored.model)
    of: dict[str, dict[str, Labelled]] = defaultdict(dict)
    for label in labelled:
        of[aliases.get(label.index, label.index)][label.id] = label
    for name, own in sorted(of.items()):
        try:
            index = await indexes.open(name)
        except NotFoundError:
            continue
        ids, texts, vectors = await existing(index, [*own], left, reserve)
        if not ids:
            continue
        model = model or indexes.served.by_revision(index.identity.revision)
        fitting = index.identity.revision == model.revision
        left -= sum(map(len, texts))
        for one, text, vector in zip(ids, texts, vectors, strict=True):
            key = digest(text)
            if own[one].given >= latest.get(key, 0.0):
                latest[key] = own[one].given
                # documents of indexes come last
                former = found.pop(key, None)
                before = None if former is None else former.own
                known = vector if fitting else None
                found[key] = _Example(text, own[one].labels, own[one].index, known, before)
    examples = Examples(
        [one.text for one in found.values()], [one.labels for one in found.values()]
    )
    if len(found) > MOST_EXAMPLES:
        raise InvalidError(
            f"labels: there are {len(found)} examples and labelled documents, the limit is "
            f"{MOST_EXAMPLES}: remove labels, or PUT the classifier again with fewer examples",
            "labels",
        )
    try:
        check(examples.labels, several)
    except ValueError as error:
        raise InvalidError(str(error), "labels") from error
    if stored is not None:
        named = stored.model
    else:
        named = model.name if model is not None and len(indexes.served.models) > 1 else None
    examples = replace(
        examples,
        multi_label=several,
        unlabelled=stored.unlabelled if stored else None,
        model=named,
        labelled_in=[one.index for one in found.values() if one.index is not None],
        replaced=[one.replaced for one in found.values() if one.index is not None],
    )
    return examples, [one.vector for one in found.values()]


async def _kept(
    indexes: Indexes, stored: Examples | None, aliases: Mapping[str, str]
) -> list[_Example]:
    """The stored examples that count without labels of now, those from an index last."""
    if stored is None:
        return []
    gone = set()
    for name in set(stored.labelled_in):
        try:
            await indexes.open(aliases.get(name, name))
        except NotFoundError:
            gone.add(name)
    own = len(stored.inputs) - len(stored.labelled_in)
    kept = [_Example(stored.inputs[at], stored.labels[at], None) for at in range(own)]
    given: list[_Example] = []
    rest = zip(
        stored.inputs[own:], stored.labels[own:], stored.labelled_in, stored.replaced, strict=True
    )
    for text, labels, name, replaced in rest:
        if name in gone:
            given.append(_Example(text, labels, name, replaced=replaced))
        elif replaced is not None:
            kept.append(_Example(text, replaced, None))
    return kept + given
