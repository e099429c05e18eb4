"""``docsplit-index FILE|FOLDER --index NAME``: indexes documents without a server.

``COMMANDS`` lists the other commands.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Console

from docsplit.bundles.manifest import BundleError
from docsplit.corpora.documents import Refused, check_source, entries, read_documents, titled
from docsplit.corpora.fields import DataError, Fields, add_field_flags
from docsplit.corpora.files import FORMATS
from service import precedence
from service.bulk import check, optimizing
from service.bulk.command_settings import (
    add_link_flags,
    find_links,
    link_names,
    load_settings,
    separate,
)
from service.bulk.exporting import run as exporting
from service.bulk.loader import encode_texts
from service.bulk.optimizing import optimize
from service.bulk.progress import IndexProgress
from service.embedding.background import BackgroundEmbedder
from service.embedding.prompts import resolve
from service.errors import BuildingError, CommandError, ServiceError
from service.features import feature
from service.index.rows.fields import FieldType
from service.logs import printable
from service.server.bodies.fields import FIELD_NAME, INDEX_NAME
from service.server.encoders import open_one
from service.server.lifecycle import Service
from service.settings import Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from docsplit.corpora.documents import Document
    from service.bulk.loader import Encoded, Report, Update, Updater
    from service.embedding.batching.queue import BatchReport
    from service.index.documents import Index
    from service.index.found_links import Names
    from service.index.indexes import Indexes
    from service.index.reembed import Embed

    # lets others bring the index of a name up to date
    Spread = Callable[[str, Updater, Index], Awaitable[Update]]


Command = Callable[[Sequence[str], list[str]], int]
"""Runs a command with its own arguments, and with flags of settings."""

COMMANDS: dict[str, Command] = {
    "check": check.main,
    "export": exporting.main,
    "optimize": optimizing.main,
    "erase": optimizing.erase_main,
}


def command(arguments: Sequence[str]) -> Command | None:
    """What runs a command; None if it indexes a file, which may have a command's name.

    Args:
        arguments: without flags of settings.
    """
    if any(a == "--index" or a.startswith("--index=") for a in arguments):
        return None
    return COMMANDS.get(arguments[0]) if arguments else None


@dataclass(frozen=True, slots=True)
class Source:
    """What a run reads.

    Attributes:
        documents: read while the run goes on.
        entries: rows and files, counted for the time left.
        unread: gets the files that cannot be read.
        prune: whether to delete what the source lacks.
    """

    documents: Iterable[Document]
    entries: Iterable[object]
    unread: list[Refused]
    prune: bool


def main(arguments: list[str] | None = None) -> int:
    """Index documents.

    Returns:
        Exit status: 0 when all are indexed, 1 when some were refused, 2 when the run could not
        start, 130 when interrupted; the same command then continues.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        precedence.lower()
    try:
        own, flags = separate(arguments)
        other = command(own)
        return other(own[1:], flags) if other is not None else _load(own, flags)
    except KeyboardInterrupt:
        print("docsplit-index: interrupted; repeat it to continue", file=sys.stderr)  # noqa: T201
        return 130
    except (ServiceError, BundleError, DataError) as error:
        # of settings, an error has a line for each
        said = printable(str(error)) if isinstance(error, DataError) else error
        print(f"docsplit-index: {said}", file=sys.stderr)  # noqa: T201
        return 2


def _load(arguments: list[str], flags: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "docsplit-index",
        description="Embed documents and store them in an index, without a server. Documents that "
        "the index already has unchanged are skipped, so you can repeat an interrupted run.",
        epilog="docsplit-index check [NAME] verifies the store, export NAME DEST writes an index "
        "to files, optimize NAME does its maintenance now, and erase NAME removes deleted texts "
        "from the disk. Further flags are docsplit-serve's, such as --index-path, --bundle and "
        "--threads.",
        allow_abbrev=False,
    )
    parser.add_argument("source", type=Path, help=f"{FORMATS} file, packed or not, or a folder")
    parser.add_argument("--index", required=True, help="its name; created if it is missing")
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME=TYPE", help="metadata to filter by"
    )
    parser.add_argument(
        "--embed-titles",
        action="store_true",
        help="begin each text with its title, so that searches find its words too",
    )
    parser.add_argument(
        "--prune", action="store_true", help="delete the index's documents that SOURCE lacks"
    )
    parser.add_argument("--links", type=Path, help="table with the columns citing and cited")
    add_link_flags(parser)
    add_field_flags(parser, "text", "id", "title")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="embed on a Ray cluster: auto, host:port, local"
    )
    parser.add_argument(
        "--ray-actors",
        type=int,
        help="with --ray: most actors; 0, the default, takes as many as fit",
    )
    given = parser.parse_args(arguments)
    if not re.fullmatch(INDEX_NAME, given.index):
        raise SettingsError("--index: lower-case letters, digits, - and _; up to 63")
    if given.ray_actors is not None and (given.ray is None or given.ray_actors < 0):
        raise SettingsError("--ray-actors: a number from 0 on, together with --ray")
    names = link_names(given)
    fields = _fields(given.field)
    # environment variables for the service would leave cores idle here, or prevent the start
    settings = load_settings(flags).model_copy(update={"keys_file": None})
    columns = Fields.given(given)
    # before the engine starts, and before there is a new index
    check_source(given.source, columns, given.links)
    unread: list[Refused] = []
    documents = read_documents(
        given.source,
        columns,
        declared=fields,
        links=given.links,
        refuse=unread.append,
        ocr=settings.ocr,
    )
    if given.embed_titles:
        documents = map(titled, documents)
    source = Source(documents, entries(given.source, given.links), unread, given.prune)
    with ExitStack() as stack:
        spread = None
        if given.ray is not None:
            made = feature("ray").cluster(given.ray, given.ray_actors or 0, settings)
            spread = stack.enter_context(made).update
        return asyncio.run(_index(settings, source, given.index, fields, spread, names))


def _fields(items: Sequence[str]) -> dict[str, FieldType]:
    fields: dict[str, FieldType] = {}
    for name, kind in map(_field, items):
        if fields.setdefault(name, kind) != kind:
            raise SettingsError(f"--field {name}: two types, {fields[name]} and {kind}; give one")
    return fields


def _field(item: str) -> tuple[str, FieldType]:
    name, _, kind = item.rpartition("=")
    for known in get_args(FieldType):
        if kind == known and re.fullmatch(FIELD_NAME, name):
            return name, known
    raise SettingsError(f"--field {item}: NAME=TYPE, TYPE one of {', '.join(get_args(FieldType))}")


async def _index(
    settings: Settings,
    source: Source,
    name: str,
    fields: dict[str, FieldType],
    spread: Spread | None,
    names: Names | None,
) -> int:
    console = Console(stderr=True)
    service = Service(settings, open_one(settings))
    await service.start()
    if service.running is None:
        return 2
    try:
        from service.bulk.loader import Updater, here, load_documents, maintained
        from service.index import maintenance

        indexes = await service.store.indexes()
        if fields or name not in await indexes.names():
            await indexes.create(name, fields)
        with IndexProgress(console) as progress:
            index = await _current(indexes, name, service.encoders.reembedder, progress)
            if await maintenance.add(index):
                index = await indexes.open(name)
            task = progress.start(name)
            progress.count(task, source.entries)

            def show(report: Report) -> None:
                progress.update(task, report.seen, report.tokens)

            prompt = resolve(service.encoders.default.manifest, None)
            embedder = BackgroundEmbedder(service.running.embedder, prompt, exclusive=True)
            batcher = service.running.batcher

            def computed(batch: BatchReport) -> None:
                progress.computed(task, batch.tokens, batcher.queued_tokens)

            async def encode(texts: Mapping[str, str]) -> Encoded:
                progress.embedding(len(texts))
                return await encode_texts(embedder, texts)

            batcher.model.report = computed
            sync = indexes.database.sync
            updater = Updater(index, encode, sync)
            update = here(updater)
            if spread is not None:
                update = await spread(name, updater, index)
            update = maintained(update, indexes, name, sync)
            report = await load_documents(source.documents, update, show)
            pruned = await _prune(indexes, name, index, report, source)
            try:
                await optimize(indexes, name, index, lambda what: progress.step(f"{name}: {what}"))
            except CommandError:
                console.print(
                    "the documents are stored, but other processes wrote to the index all the "
                    f"time: run docsplit-index optimize {name} when they write less",
                    markup=False,
                )
            progress.ended()
        found = None if names is None else await find_links(indexes, index, names)
    except (OSError, RuntimeError, ValueError) as error:
        fault = await service.store.fault(error)
        if fault is None:
            raise
        raise fault from error
    finally:
        await service.stop()
    refused = [*(f"{one.id}: {one.reason}" for one in source.unread), *report.refused]
    for line in refused:
        # names in a folder or an archive come from its author
        said = f"refused: {printable(line)}"
        console.print(said, style="red", markup=False, emoji=False, soft_wrap=True)
    console.print(
        f"{report.written} written, {report.unchanged} unchanged, {report.repeated} repeated ids, "
        f"{len(refused)} refused" + (f", {pruned} pruned" if source.prune else "")
    )
    if found is not None:
        console.print(
            f"{found.links} links in the texts of {found.documents} documents; {found.names} "
            f"names, {found.ambiguous} of them ambiguous, {found.left_out} more beyond the limits"
        )
    return 1 if refused else 0


async def _prune(indexes: Indexes, name: str, index: Index, report: Report, source: Source) -> int:
    if not source.prune:
        return 0
    from service.bulk.loader import prune

    return await prune(indexes, name, index, report.ids, {one.id for one in source.unread})


async def _current(
    indexes: Indexes, name: str, embed_for: Callable[[str], Embed], progress: IndexProgress
) -> Index:
    """The index for this bundle; re-embedded first if only another bundle's exists."""
    from service.index.reembed import Follower

    try:
        return await indexes.open(name)
    except BuildingError as error:
        total = error.total
        task = progress.start(f"{name}: re-embedding", total, error.done)

    def left(documents: int) -> None:
        progress.update(task, total - documents)

    built = await Follower(indexes, embed_for, lambda *_: None, left).build(name)
    progress.ended()
    return built


if __name__ == "__main__":
    sys.exit(main())
