"""The scalar and full-text indexes over an index's columns."""

from __future__ import annotations

import pyarrow as pa
from lancedb.index import FTS, Bitmap, BTree, LabelList
from lancedb.table import AsyncTable

from docsplit.ranking.words import INDEX
from service.index import sql
from service.index.rows import schema, terms
from service.index.rows.keyed import conflicting

# documents whose words an earlier version has not stored
LACKING = sql.every(sql.LIVE, sql.negated(sql.given(terms.WORDS)))


async def prepare(table: AsyncTable, *, again: bool = False) -> None:
    """Build the scalar and full-text indexes that a table lacks, or all of them again."""
    held = await indexed(table)
    wanted: dict[str, BTree | Bitmap | FTS | LabelList] = {"id": BTree(), "links": LabelList()}
    # until an upgrade has stored all words, searches read the texts' index of an earlier version
    if terms.WORDS in held or await _filled(table):
        wanted[terms.WORDS] = FTS(**INDEX)
    for field in await table.schema():
        if field.name.startswith(schema.PREFIX):
            wanted[field.name] = _of_metadata(field.type)
    for column, config in wanted.items():
        if column in held and not again:
            continue
        try:
            await table.create_index(column, config=config)
        except RuntimeError as error:
            # two processes may prepare a new table at once, and the first one builds the index
            if again or not conflicting(error) or column not in await indexed(table):
                raise
    if "text" in held and terms.WORDS in await indexed(table):
        await table.drop_index(held["text"])


async def indexed(table: AsyncTable) -> dict[str, str]:
    """The columns with an index, and the name of each index."""
    return {built.columns[0]: built.name for built in await table.list_indices()}


async def _filled(table: AsyncTable) -> bool:
    return terms.WORDS in (await table.schema()).names and not await table.count_rows(LACKING)


def _of_metadata(kind: pa.DataType) -> BTree | Bitmap | LabelList:
    if pa.types.is_boolean(kind):
        return Bitmap()
    return LabelList() if pa.types.is_list(kind) else BTree()
