"""Labelled documents from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.errors import HeadError


def read_examples(path: Path, text_field: str, label_field: str) -> tuple[list[str], list[Any]]:
    """Texts and labels of a CSV, JSON lines or Parquet file.

    A column of lists gives several labels a document.

    Raises:
        HeadError: no such file or column, no rows, or a row without text or label.
    """
    import pyarrow as pa
    from pyarrow import csv, json, parquet

    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        elif path.suffix == ".jsonl":
            table = json.read_json(path)
        elif path.suffix == ".csv":
            # so that a label such as 1 stays text, and a text may have several lines
            table = csv.read_csv(
                path,
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types={text_field: pa.string(), label_field: pa.string()}
                ),
            )
        else:
            raise HeadError(f"{path}: give a .csv, .jsonl or .parquet file")
    except (OSError, pa.ArrowException) as error:
        raise HeadError(f"{path}: {str(error).splitlines()[0]}") from None
    missing = [name for name in (text_field, label_field) if name not in table.column_names]
    if missing:
        raise HeadError(
            f"{path}: no column {' and '.join(missing)}; there are {', '.join(table.column_names)}"
        )
    texts, labels = table[text_field].to_pylist(), table[label_field].to_pylist()
    for row, (text, label) in enumerate(zip(texts, labels, strict=True), start=1):
        if not isinstance(text, str) or not text.strip() or label in (None, ""):
            raise HeadError(f"{path}: row {row} lacks its {text_field} or {label_field}")
    if not texts:
        raise HeadError(f"{path}: holds no rows")
    several = isinstance(labels[0], list)
    return texts, labels if several else [str(label) for label in labels]
