"""Counts how many documents have each value of some metadata fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from service.errors import InvalidError
from service.index.documents import Index
from service.index.query.filters import Where, live
from service.index.rows.fields import FieldType
from service.index.rows.schema import PREFIX

# values of a field that are counted, and the sum of their characters
_VALUES = 10_000
_CHARACTERS = 4_000_000
_KINDS = ("string", "strings", "integer", "boolean")

Value = str | int | bool


@dataclass(slots=True)
class Facet:
    """The values of one field.

    Attributes:
        counts: documents by value.
        others: sum of the documents of each value that is not counted separately.
        characters: of all counted values.
    """

    counts: Counter[Value] = field(default_factory=Counter)
    others: int = 0
    characters: int = 0

    def add(self, column: pa.Array) -> None:
        """Count the values of further documents."""
        if pa.types.is_list(column.type):
            column = column.flatten()
        for one in column.drop_null().value_counts().to_pylist():
            value, number = one["values"], one["counts"]
            if value not in self.counts:
                length = len(value) if isinstance(value, str) else 1
                if len(self.counts) >= _VALUES or self.characters + length > _CHARACTERS:
                    self.others += number
                    continue
                self.characters += length
            self.counts[value] += number

    def most(self, number: int) -> list[tuple[Value, int]]:
        """The most frequent values with their counts."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:number]


def check(names: Sequence[str], fields: Mapping[str, FieldType]) -> None:
    """Raise InvalidError if a field is not declared, or has a type without facets."""
    known = sorted(name for name, kind in fields.items() if kind in _KINDS)
    if not set(names) <= set(known):
        raise InvalidError(
            "facets: give declared fields of the types string, strings, integer and boolean; "
            f"this index has: {', '.join(known) or 'none'}",
            "facets",
        )


async def count(index: Index, names: Sequence[str], where: Where | None) -> dict[str, Facet]:
    """The values of fields by name, over all documents that pass a filter.

    Args:
        index: whose documents are counted.
        names: that ``check`` accepted.
        where: the filter; None counts all documents.
    """
    found = {name: Facet() for name in names}
    query = index.table.query().where(live(where).form).select([PREFIX + name for name in found])
    async for batch in await query.to_batches():
        for name, facet in found.items():
            facet.add(batch[PREFIX + name])
    return found
