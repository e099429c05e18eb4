"""``docsplit-train citation``: documents and their links in, a citation head in the bundle out."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from corpora.fields import add_field_flags
from training.errors import HeadError
from training.heads.bundling import into_bundle
from training.heads.served import environment, flags, served

_LABELS = ["unlinked", "cites"]


def main(arguments: Sequence[str]) -> int:
    """Train a citation head and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train citation",
        description="Train a citation head on the links of documents, and put it into a bundle, "
        "where it serves every index that has none of its own. Identifiers in the texts that give "
        'a link away, such as "PEP 484", should be masked first.',
        allow_abbrev=False,
    )
    parser.add_argument(
        "--documents", type=Path, required=True, help="a file or folder, as for docsplit-index"
    )
    parser.add_argument("--links", type=Path, help="table with the columns citing and cited")
    add_field_flags(parser, "text", "id", "title")
    parser.add_argument("--bundle", type=Path, required=True, help="folder; it is changed")
    parser.add_argument("--name", default="citation", help="default: citation")
    parser.add_argument(
        "--index-path", type=Path, help="keep the index here, to go on where a run was interrupted"
    )
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as work:
        path = given.index_path or Path(work, "index")
        _index(given, path)
        with served(given.bundle, path) as client:
            report = client.json("POST", "/indexes/documents/citation")
            archive = client.read("GET", "/indexes/documents/citation/network")
    into_bundle(given.bundle, given.name, "citation", archive, _LABELS, report)
    Console(highlight=False).print(
        f"{given.bundle}: citation head {given.name} of {report['links']} links; the first cited "
        f"document of held-out ones ranks by MRR {report['mrr']:.3f}, in the hybrid search's order "
        f"{report['hybrid_mrr']:.3f}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _index(given: argparse.Namespace, path: Path) -> None:
    command = [sys.executable, "-m", "service.bulk", str(given.documents), "--index", "documents"]
    command += [*flags(given.bundle, path), "--log-level", "error"]
    for name in ("text", "id", "title"):
        command += [f"--{name}-field", getattr(given, f"{name}_field")]
    if given.links is not None:
        command += ["--links", str(given.links)]
    done = subprocess.run(command, env=environment(), check=False)  # noqa: S603
    if done.returncode:
        raise HeadError("the documents could not be indexed; the reason stands above")
