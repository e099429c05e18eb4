"""``docsplit embed IN OUT``: the vector of each text of a file, without a server.

The vectors of some texts at a time are a file in the folder ``OUT.parts``. So a run that was
interrupted goes on after the last of them, and OUT appears when it is whole.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from docsplit.bundles.manifest import BundleError
from docsplit.corpora.documents import Document as Source
from docsplit.corpora.documents import check_source, entries, read_texts
from docsplit.corpora.errors import DataError
from docsplit.corpora.fields import Fields, add_field_flags
from docsplit.corpora.files import FORMATS
from docsplit.windowing.pooling import shorten
from service import executors, precedence
from service.bulk.command_settings import load_settings, separate
from service.bulk.progress import IndexProgress
from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import Document, UnusableInputError
from service.embedding.prompts import resolve
from service.errors import ServiceError
from service.logs import printable
from service.server.lifecycle import Service
from service.server.opening import open_one
from service.settings import Settings, SettingsError

# texts of a part: an interruption loses the work on so many
PART_TEXTS = 512
_PLAN = "plan.json"


def main(arguments: list[str] | None = None) -> int:
    """Embed a file.

    Returns:
        Exit status: 0 when all texts have a vector, 1 when some have an error, 2 when the run could
        not start or go on, 130 when interrupted; the same command then continues.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        precedence.lower()
    own, flags = separate(arguments)
    parser = argparse.ArgumentParser("docsplit", allow_abbrev=False)
    embed = parser.add_subparsers(dest="command", required=True).add_parser(
        "embed",
        help="write the vector of each text of a file",
        description="Write the vector of each text of a file. Repeat an interrupted run.",
        epilog="Further flags are docsplit-serve's, such as --bundle and --threads.",
        allow_abbrev=False,
    )
    embed.add_argument("source", type=Path, metavar="IN", help=f"{FORMATS} file, or a folder")
    embed.add_argument("target", type=Path, metavar="OUT", help="a .parquet or .jsonl file")
    embed.add_argument("--dimensions", type=int, help="keep the first components only")
    embed.add_argument("--prompt-name", help="a prompt of the model")
    embed.add_argument("--truncate", action="store_true", help="cut texts that are too long")
    add_field_flags(embed, "text", "id")
    given = parser.parse_args(own)
    try:
        return asyncio.run(_embed(given, load_settings(flags, "docsplit")))
    except KeyboardInterrupt:
        status, reason = 130, "interrupted; repeat it to continue"
    except (ServiceError, BundleError, DataError, OSError) as error:
        status, reason = 2, printable(str(error))
    print(f"docsplit: {reason}", file=sys.stderr)  # noqa: T201
    return status


async def _embed(given: argparse.Namespace, settings: Settings) -> int:
    columns = Fields.given(given)
    check_source(given.source, columns)
    if given.target.suffix not in (".parquet", ".jsonl"):
        raise SettingsError("OUT: give a name that ends in .parquet or .jsonl")
    if given.target.exists():
        raise SettingsError(f"OUT: {given.target} exists: remove it, or give another name")
    console = Console(stderr=True)
    service = Service(settings.model_copy(update={"keys_file": None}), open_one(settings))
    manifest = service.encoders.default.manifest
    width = given.dimensions or manifest.dimensions
    if not 1 <= width <= manifest.dimensions:
        raise SettingsError(f"--dimensions: this model has {manifest.dimensions}")
    prompt = resolve(manifest, given.prompt_name)
    plan = [manifest.revision, prompt, width, given.truncate]
    parts = _parts(given.target, plan)
    await service.start()
    if service.running is None:
        return 2
    texts = read_texts(given.source, columns)
    rows = errors = tokens = number = 0
    try:
        embedder = BackgroundEmbedder(
            service.running.embedder, prompt, exclusive=True, truncate=given.truncate
        )
        with IndexProgress(console) as progress:
            task = progress.start("embedding")
            progress.count(task, entries(given.source))
            while some := await executors.STORE.run(list, islice(texts, PART_TEXTS)):
                file = parts / f"{number:08}.parquet"
                ids = [one.id for one in some]
                if file.exists():
                    part = await executors.STORE.run(pq.read_table, file)
                    if part.schema.metadata[b"digest"] != _digest(some):
                        raise DataError(f"IN changed since the run began: remove {parts}")
                else:
                    outcomes = await embedder([one.text for one in some])
                    tokens += sum(one.tokens for one in outcomes if isinstance(one, Document))
                    part = _table(ids, outcomes, width)
                    part = part.replace_schema_metadata({"digest": _digest(some)})
                    await executors.STORE.run(_write, part, file)
                rows, number = rows + len(ids), number + 1
                errors += len(ids) - part["error"].null_count
                progress.update(task, rows, tokens)
    finally:
        await service.stop()
    await executors.STORE.run(_join, parts, number, width, given.target)
    console.print(f"{rows - errors:,} vectors, {errors:,} errors", markup=False, highlight=False)
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
        raise SettingsError(
            f"OUT: {folder} is of a run with other flags or another bundle: repeat that run, or "
            "remove the folder"
        )
    return folder


def _digest(some: Sequence[Source]) -> bytes:
    return hashlib.sha256(repr([(one.id, one.text) for one in some]).encode()).hexdigest().encode()


def _table(
    ids: Sequence[str], outcomes: Sequence[Document | UnusableInputError], width: int
) -> pa.Table:
    matrix = np.zeros((len(ids), width), np.float32)
    errors: list[str | None] = [None] * len(ids)
    for place, one in enumerate(outcomes):
        if isinstance(one, UnusableInputError):
            errors[place] = f"the text {one.reason}"
        else:
            matrix[place] = shorten(one.vector()[None], width)[0]
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
    schema = _table([], [], width).schema
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
