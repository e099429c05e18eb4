"""The scalar and full-text indexes over an index's columns."""

from __future__ import annotations

import pyarrow as pa
from lancedb.index import FTS, Bitmap, BTree, LabelList
from lancedb.table import AsyncTable

from service.index.rows import schema
from service.index.rows.keyed import conflicting

# most English texts have these words, so they do not tell documents apart
STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)


async def prepare(table: AsyncTable, *, again: bool = False) -> None:
    """Build the scalar and full-text indexes that a table lacks, or all of them again."""
    held = set() if again else await _held(table)
    wanted: dict[str, BTree | Bitmap | FTS | LabelList] = {
        "id": BTree(),
        # ICU segments scripts without blanks; with it Lance would leave out the stop words of all
        # languages, among them the English cat, dog and war
        "text": FTS(
            with_position=False, base_tokenizer="icu/split", custom_stop_words=STOP_WORDS.split()
        ),
        "links": LabelList(),
    }
    for field in await table.schema():
        if field.name.startswith(schema.PREFIX):
            wanted[field.name] = _of_metadata(field.type)
    for column, config in wanted.items():
        if column in held:
            continue
        try:
            await table.create_index(column, config=config)
        except RuntimeError as error:
            # two processes may prepare a new table at once, and the first one builds the index
            if again or not conflicting(error) or column not in await _held(table):
                raise


async def _held(table: AsyncTable) -> set[str]:
    return {built.columns[0] for built in await table.list_indices()}


def _of_metadata(kind: pa.DataType) -> BTree | Bitmap | LabelList:
    if pa.types.is_boolean(kind):
        return Bitmap()
    return LabelList() if pa.types.is_list(kind) else BTree()
