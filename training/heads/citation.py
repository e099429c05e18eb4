"""``docsplit-train citation``: train a citation head from documents and links."""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console

from docsplit.corpora.documents import Document, read_documents, read_links
from docsplit.corpora.fields import Fields, add_field_flags
from docsplit.corpora.reading import links_among
from docsplit.heads.citation import Inputs, learn
from export.heads import add_head
from training.errors import HeadError
from training.heads.embedding import add_flags, embed, head_name
from training.heads.searches import searches


def main(arguments: Sequence[str]) -> int:
    """Train a citation head and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train citation",
        description="Train a citation head on the links of documents, and put it into a bundle. It "
        "serves every index that has no citation head. First mask identifiers in the texts that "
        'reveal a link, such as "PEP 484".',
        allow_abbrev=False,
    )
    parser.add_argument(
        "--documents", type=Path, required=True, help="a file or folder, as for docsplit-index"
    )
    parser.add_argument("--links", type=Path, help="table with the columns citing and cited")
    add_field_flags(parser, "text", "id", "title")
    parser.add_argument(
        "--inputs",
        choices=get_args(Inputs),
        default="features",
        help="a logistic regression on features of each pair, or a network on both vectors",
    )
    parser.add_argument("--bundle", type=Path, required=True, help="folder of the bundle to change")
    parser.add_argument("--name", type=head_name, default="citation", help="default: citation")
    add_flags(parser)
    given = parser.parse_args(arguments)
    held, links = _read(given.documents, given.links, Fields.given(given))
    started = time.monotonic()
    vectors = embed(given.bundle, given.cache, [one.text for one in held], given.precision)
    found = searches(held, vectors, links)
    total = sum(map(len, links.values()))
    try:
        learnt = learn(found, total, len(links), math.inf, inputs=given.inputs)
    except ValueError as error:
        raise HeadError(str(error)) from None
    report = learnt.report | {"training_seconds": time.monotonic() - started}
    add_head(
        given.bundle,
        given.name,
        learnt.network,
        kind="citation",
        labels=learnt.labels,
        report=report,
    )
    Console(highlight=False, markup=False).print(
        f"{given.bundle}: citation head {given.name} of {report['links']} links; on held-out "
        f"documents its MRR is {report['mrr']:.3f}, that of the search without it "
        f"{report['hybrid_mrr']:.3f}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _read(
    documents: Path, links: Path | None, fields: Fields
) -> tuple[list[Document], dict[int, set[int]]]:
    """Documents and the numbers of cited ones; the first document of each id counts."""
    held: dict[str, Document] = {}
    pairs = [] if links is None else list(read_links(links))
    for document in read_documents(documents, fields, links=links):
        if document.text.strip() and document.id not in held:
            held[document.id] = document
            pairs += [(document.id, cited) for cited in document.links]
    # sorted by id as in the service, so the same documents are held out
    names = sorted(held)
    return [held[name] for name in names], links_among(names, pairs)[0]
