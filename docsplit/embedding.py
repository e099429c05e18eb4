"""``docsplit embed IN OUT``: the vector of each text of a file, without a server.

The vectors of some texts at a time are a file in the folder ``OUT.parts``. So a run that was
interrupted goes on after the last of them, and OUT appears when it is whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.bundles.manifest import BundleError
from docsplit.corpora.documents import Document, check_source, entries, read_texts
from docsplit.corpora.fields import DataError, Fields, add_field_flags
from docsplit.corpora.files import FORMATS
from docsplit.encoder import EmptyTextError, Encoder
from docsplit.engines.choice import ArithmeticWish, EngineWish
from docsplit.windowing.pooling import UNKNOWN, Vectors, shorten

# texts of a part: an interruption loses the work on so many
PART_TEXTS = 512
_PLAN = "plan.json"


def main(arguments: list[str] | None = None) -> int:
    """Embed a file.

    Returns:
        Exit status: 0 when all texts have a vector, 1 when some have an error, 2 when the run could
        not start or go on, 130 when interrupted; the same command then continues.
    """
    parser = argparse.ArgumentParser("docsplit", allow_abbrev=False)
    embed = parser.add_subparsers(dest="command", required=True).add_parser(
        "embed",
        help="write the vector of each text of a file",
        description="Write the vector of each text of a file. Repeat an interrupted run.",
        allow_abbrev=False,
    )
    embed.add_argument("source", type=Path, metavar="IN", help=f"{FORMATS} file, or a folder")
    embed.add_argument("target", type=Path, metavar="OUT", help="a .parquet or .jsonl file")
    embed.add_argument("--bundle", type=Path, default=DEFAULT_BUNDLE, help="folder of the bundle")
    embed.add_argument("--engine", choices=get_args(EngineWish), default="auto")
    embed.add_argument("--precision", choices=get_args(ArithmeticWish), default="auto")
    embed.add_argument("--threads", type=int, default=0, help="CPU cores; default all")
    embed.add_argument("--dimensions", type=int, help="keep the first components only")
    embed.add_argument("--prompt-name", help="a prompt of the model")
    add_field_flags(embed, "text", "id")
    given = parser.parse_args(arguments)
    if arguments is None:
        # requests of a service on this machine go first
        os.nice(10)
    try:
        return _embed(given)
    except KeyboardInterrupt:
        status, reason = 130, "interrupted; repeat it to continue"
    except (BundleError, DataError, OSError, ValueError) as error:
        status, reason = 2, str(error)
    print(f"docsplit: {reason}", file=sys.stderr)  # noqa: T201
    return status


def _embed(given: argparse.Namespace) -> int:
    columns = Fields.given(given)
    check_source(given.source, columns)
    if given.target.suffix not in (".parquet", ".jsonl"):
        raise DataError("OUT: give a name that ends in .parquet or .jsonl")
    if given.target.exists():
        raise DataError(f"OUT: {given.target} exists: remove it, or give another name")
    encoder = Encoder(
        given.bundle, engine=given.engine, precision=given.precision, threads=given.threads
    )
    manifest = encoder.manifest
    width = given.dimensions or manifest.dimensions
    if not 1 <= width <= manifest.dimensions:
        raise DataError(f"--dimensions: this model has {manifest.dimensions}")
    if given.prompt_name is not None and given.prompt_name not in manifest.prompts:
        known = ", ".join(sorted(manifest.prompts)) or "none"
        raise DataError(f"--prompt-name: this model has no such prompt; it has: {known}")
    parts = _parts(given.target, [manifest.revision, given.prompt_name, width])
    texts = read_texts(given.source, columns)
    rows = errors = number = 0
    columns_shown = (
        SpinnerColumn(),
        TextColumn("{task.completed:,} of {task.total:,} texts"),
        TimeElapsedColumn(),
    )
    with Progress(*columns_shown, console=Console(stderr=True)) as progress:
        task = progress.add_task("embedding", total=sum(1 for _ in entries(given.source)))
        while some := list(islice(texts, PART_TEXTS)):
            file = parts / f"{number:08}.parquet"
            if file.exists():
                part = pq.read_table(file)
                if part.schema.metadata[b"digest"] != _digest(some):
                    raise DataError(f"IN changed since the run began: remove {parts}")
            else:
                part = _part(encoder, some, given.prompt_name, width)
                _write(part, file)
            rows, number = rows + len(some), number + 1
            errors += len(some) - part["error"].null_count
            progress.update(task, completed=rows)
        progress.console.print(f"{rows - errors:,} vectors, {errors:,} errors", highlight=False)
    _join(parts, number, width, given.target)
    return int(errors > 0)


def _parts(target: Path, plan: list[Any]) -> Path:
    """The folder of the parts, which belong to one plan."""
    folder = target.with_name(f"{target.name}.parts")
    folder.mkdir(exist_ok=True)
    file = folder / _PLAN
    if not file.exists():
        scratch = folder / f"{_PLAN}.new"
        scratch.write_text(json.dumps(plan))
        scratch.replace(file)
    if json.loads(file.read_text()) != plan:
        raise DataError(
            f"OUT: {folder} is of a run with other flags or another bundle: repeat that run, or "
            "remove the folder"
        )
    return folder


def _digest(some: Sequence[Document]) -> bytes:
    return hashlib.sha256(repr([(one.id, one.text) for one in some]).encode()).hexdigest().encode()


def _part(encoder: Encoder, some: Sequence[Document], prompt: str | None, width: int) -> pa.Table:
    """The rows of some texts. A text without tokens or known words has an error for a vector."""
    errors: list[str | None] = []
    for one in some:
        try:
            encoder.windows([one.text], first=True)
            errors.append(None)
        except EmptyTextError:
            errors.append("the text is empty: it makes no token")
    good = [number for number, error in enumerate(errors) if error is None]
    found = encoder.documents([some[number].text for number in good], prompt_name=prompt)
    matrix = np.zeros((len(some), width), np.float32)
    for number, document in zip(good, found, strict=True):
        [matrix[number]] = shorten(document.vector[None], width)
        errors[number] = None if document.vector.any() else f"the text {UNKNOWN}"
    table = _table([one.id for one in some], matrix, errors)
    return table.replace_schema_metadata({"digest": _digest(some)})


def _table(ids: Sequence[str], matrix: Vectors, errors: Sequence[str | None]) -> pa.Table:
    width = matrix.shape[1]
    missing = pa.array([error is not None for error in errors], pa.bool_())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), width, mask=missing)
    columns = [pa.array(ids, pa.string()), vectors, pa.array(errors, pa.string())]
    return pa.table(columns, ["id", "vector", "error"])


def _write(part: pa.Table, file: Path) -> None:
    scratch = file.with_suffix(".new")
    pq.write_table(part, scratch)
    os.replace(scratch, file)


def _join(parts: Path, number: int, width: int, target: Path) -> None:
    """Write OUT from its parts, and remove them."""
    scratch = parts / "whole.new"
    schema = _table([], np.empty((0, width), np.float32), []).schema
    with scratch.open("wb") as stream:
        writer = pq.ParquetWriter(stream, schema) if target.suffix == ".parquet" else None
        for place in range(number):
            part = pq.read_table(parts / f"{place:08}.parquet")
            if writer is not None:
                writer.write_table(part)
            else:
                stream.writelines(orjson.dumps(row) + b"\n" for row in part.to_pylist())
        if writer is not None:
            writer.close()
    os.replace(scratch, target)
    shutil.rmtree(parts)


if __name__ == "__main__":
    sys.exit(main())
