"""Labels that people give to documents of indexes; every replica sees them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
from lancedb.expr import Expr, col, lit

from service.errors import TooLargeError
from service.index.rows.keyed import KeyedTable, Row
from service.index.storage.database import Database

# documents that one classifier has labels for
MOST_LABELLED = 10_000
# seconds between the labels of one call, which keeps their order
_STEP = 1e-6


@dataclass(frozen=True, slots=True)
class Labelled:
    """A document with its labels.

    Attributes:
        index: name of its index, or an alias, which leads to the index that it names later.
        labels: none, one or several.
        given: seconds since the epoch.
    """

    index: str
    id: str
    labels: list[str]
    given: float


class Labels:
    """The labels of all classifiers; a classifier needs no training to have some.

    Args:
        database: holds the table.
    """

    def __init__(self, database: Database) -> None:
        self._table = KeyedTable(
            database,
            "labels",
            key=pa.string(),
            classifier=pa.string(),
            source=pa.string(),
            document=pa.string(),
            labels=pa.list_(pa.string()),
            given=pa.float64(),
        )

    async def give(
        self,
        classifier: str,
        index: str,
        labels: Mapping[str, Sequence[str] | None],
        others: Collection[str] = (),
    ) -> int:
        """Set the labels of documents by id; None removes them. Durable on return.

        Args:
            index: name or alias, which the labels keep.
            others: further names of that index; labels of these documents by them are replaced.

        Returns:
            The number of the classifier's labelled documents.

        Raises:
            TooLargeError: there would be too many.
        """
        keys = {name: _key(classifier, index, name) for name in labels}
        known = {row["key"] for row in await self._table.rows(_of(classifier), ["key"])}
        kept = {keys[name] for name, given in labels.items() if given is not None}
        removed = {keys[name] for name, given in labels.items() if given is None}
        removed |= {_key(classifier, other, name) for other in others for name in labels}
        after = len((known - removed) | kept)
        if kept and after > MOST_LABELLED:
            raise TooLargeError(
                f"documents: a classifier has labels for at most {MOST_LABELLED} documents here: "
                "train with more by PUT /classifiers/{name}",
                "documents",
            )
        now = time.time()
        rows = [
            {
                "key": keys[name],
                "classifier": classifier,
                "source": index,
                "document": name,
                "labels": list(given),
                "given": now + _STEP * place,
            }
            for place, (name, given) in enumerate(labels.items())
            if given is not None
        ]
        if rows:
            await self._table.put(*rows)
        if gone := known & removed:
            await self._table.delete(self._table.of(*gone))
        await self._table.sync()
        await self._table.tidy()
        return after

    async def page(
        self, classifier: str, indexes: Collection[str], after: str, limit: int
    ) -> tuple[list[Labelled], str | None]:
        """Labelled documents of some indexes, in the order in which they got their labels.

        Args:
            indexes: their names, and aliases.
            after: the former page's second result; "" for the first page.
            limit: of documents.

        Returns:
            The documents, and where the next page begins; None after the last.
        """
        if not indexes:
            return [], None
        chosen = _of(classifier) & col("source").isin([lit(name) for name in indexes])
        rows = await self._table.rows(chosen, ["key", "given"])
        places = sorted((_place(row["given"], row["key"]), row["key"]) for row in rows)
        rest = [one for one in places if one[0] > after]
        keys = [key for _, key in rest[:limit]]
        found = await self._table.rows(self._table.of(*keys)) if keys else []
        order = {key: place for place, key in enumerate(keys)}
        found.sort(key=lambda row: order[row["key"]])
        return [_labelled(row) for row in found], rest[limit - 1][0] if len(rest) > limit else None

    async def all(self, classifier: str) -> list[Labelled]:
        """All labelled documents of a classifier, in the order in which they got their labels."""
        rows = await self._table.rows(_of(classifier))
        rows.sort(key=lambda row: (row["given"], row["key"]))
        return [_labelled(row) for row in rows]

    async def ids(self, classifier: str, names: Collection[str]) -> set[str]:
        """Ids of the documents that have labels by some names of an index."""
        chosen = _of(classifier) & col("source").isin([lit(name) for name in names])
        return {row["document"] for row in await self._table.rows(chosen, ["document"])}

    async def indexes(self, classifier: str) -> set[str]:
        """Names of the indexes with labelled documents, and aliases."""
        return {row["source"] for row in await self._table.rows(_of(classifier), ["source"])}

    async def classifiers(self) -> set[str]:
        """Names of all classifiers that have labels."""
        return {row["classifier"] for row in await self._table.rows(columns=["classifier"])}

    async def forget(self, classifier: str) -> bool:
        """Remove all labels of a classifier; returns whether it had any."""
        if not await self._table.rows(_of(classifier), ["key"]):
            return False
        await self._table.delete(_of(classifier))
        await self._table.sync()
        return True


def _key(*names: str) -> str:
    return hashlib.blake2b(orjson.dumps(names), digest_size=16).hexdigest()


def _place(given: float, key: str) -> str:
    """Sorts as text in the order of time."""
    return f"{round(given * 1e6):020d}-{key}"


def _of(classifier: str) -> Expr:
    return col("classifier").eq(lit(classifier))


def _labelled(row: Row) -> Labelled:
    return Labelled(row["source"], row["document"], row["labels"], row["given"])
