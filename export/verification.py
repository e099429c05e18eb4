"""``docsplit-export verify``: is a bundle still as near to its source as it says?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from export import bundle
from export.bundle import TOKENIZER, Bundle, Parity, PrecisionName
from export.errors import ExportError
from export.parity import measure


def main(arguments: Sequence[str]) -> int:
    """Run the gate over a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-export verify",
        description="Compare every file of a bundle with its digest, and run the gate anew: encode "
        "real paragraphs by the fp32 source and by each graph on this machine. Exit status 1 where "
        "a graph is too far from the source.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the bundle's folder")
    parser.add_argument(
        "--source", help="the checkpoint: folder or hub name (default: as the lineage calls it)"
    )
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="as docsplit-export")
    parser.add_argument("--paragraphs", type=int, default=300, metavar="N", help="at least 200")
    parser.add_argument("--threads", type=int, default=1, help="processor threads (default: 1)")
    given = parser.parse_args(arguments)
    if given.paragraphs < 200:
        parser.error("--paragraphs: parity needs at least 200")
    opened = bundle.load(given.bundle)
    from rich.console import Console

    console = Console(highlight=False)
    found = verify(
        opened,
        given.source or opened.manifest.lineage.source,
        calibration=given.calibration,
        paragraphs=given.paragraphs,
        threads=given.threads,
    )
    for name in [name for name in opened.manifest.precisions if name not in found]:
        console.print(f"{name}: its digest only, for it cannot be run here")
    for name, parity in found.items():
        stated = opened.manifest.precisions[name].parity
        console.print(
            f"{name}: cosine mean {parity.cosine_mean:.6f} (the bundle says "
            f"{stated.cosine_mean:.6f}), min {parity.cosine_min:.6f} ({stated.cosine_min:.6f}), "
            f"same nearest neighbour {parity.neighbour_agreement:.1%} "
            f"({stated.neighbour_agreement:.1%}); {parity.engine}",
            soft_wrap=True,
        )
    return 0


def verify(
    opened: Bundle, source: str, *, calibration: Path | None, paragraphs: int, threads: int
) -> dict[PrecisionName, Parity]:
    """Parity of each precision that can be run here, measured anew.

    Args:
        source: folder or hub name of the checkpoint that the bundle was made of.
        calibration: file of real text; by default the PEPs of ``examples/peps``.
        paragraphs: how many are encoded.
        threads: processor threads.

    Raises:
        ExportError: another source, too little text, or a graph is too far from it.
    """
    import torch
    from tokenizers import Tokenizer

    from export.engines import check_device, open_engine
    from export.passages import read_passages
    from export.source import open_source, reference_vectors
    from export.tokenizer import batches

    torch.set_num_threads(threads)
    manifest = opened.manifest
    checkpoint = open_source(source, source_name=None, max_tokens=manifest.max_tokens)
    if checkpoint.weights_digest() != manifest.lineage.source_sha256:
        raise ExportError(
            f"{source} is not what the bundle was made of: its weights differ; name the checkpoint "
            "with --source"
        )
    texts = read_passages(calibration, parity=paragraphs).parity
    reference = reference_vectors(checkpoint, texts).numpy()
    tokenizer = Tokenizer.from_file(str(opened.path(TOKENIZER)))
    inputs = batches(
        tokenizer,
        texts,
        max_tokens=manifest.max_tokens,
        pad_token_id=manifest.pad_token_id,
        size=8,
    )
    found: dict[PrecisionName, Parity] = {}
    for name in manifest.precisions:
        try:
            check_device(name)
        except ExportError:
            continue
        engine, encode = open_engine(name, opened.graph(name), threads=threads)
        vectors = np.concatenate([encode(batch) for batch in inputs])
        found[name] = measure(name, vectors, reference, engine=engine)
    return found
