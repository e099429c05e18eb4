"""Compare tokens/s over HTTP, of the same engine in process, and of ONNX Runtime fp32.

Every round measures the three in turn, so a machine whose speed changes affects all of them. The
figures are medians over the rounds. Ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.comparison import in_process
from benchmarks.rig import documents, server, start_bundle
from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import TOKENIZER
from docsplit.engines.openvino_cpu import OpenVinoEngine


def main() -> None:
    """Measure and print; ``--json`` stores the figures."""
    options = _options()
    texts = documents.read(options.data, options.documents, split=options.split)
    result = measure(
        texts,
        start_bundle.provide(options.bundle),
        clients=options.clients,
        group=options.group,
        rounds=options.rounds,
        flags=options.flags,
    )
    _print(result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(
    texts: Sequence[str],
    folder: Path = start_bundle.BUNDLE,
    *,
    clients: int = 4,
    group: int = 16,
    rounds: int = 5,
    flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Medians over the rounds, after a warm-up round.

    Args:
        texts: documents.
        folder: the folder of the bundle.
        clients: number of clients. Each sends one request after the other.
        group: documents per request.
        rounds: number of rounds.
        flags: flags of docsplit-serve.
    """
    opened = bundle.load(folder)
    fixed = [f"--bundle={folder}", "--cache-bytes=0", "--request-timeout=590"]
    with server.started(*fixed, *flags) as service:
        info = service.info()
        engine = info["engine"]
        precision = engine["precision"]
        graph = opened.graph("int8" if precision == "int8" else "fp16")
        cores = os.cpu_count() or 1
        with Console().status("cutting the documents"):
            cut = server.windows(service.url, texts)
        tokenizer = opened.path(TOKENIZER)
        work, tokens = in_process.batches(tokenizer, cut, engine["batch_tokens"])
        same = OpenVinoEngine(graph, precision, cores, cores).run
        reference = in_process.onnx_fp32(opened.graph("fp16"), cores)
        requests = [texts[at : at + group] for at in range(0, len(texts), group)]
        found: dict[str, list[float]] = {"http": [], "in process": [], "onnxruntime fp32": []}
        for number in track(range(rounds + 1), "rounds"):
            figures = {
                "http": tokens / server.load(service.url, requests, clients),
                "in process": tokens / in_process.seconds(same, work, cores),
                "onnxruntime fp32": tokens / in_process.seconds(reference, work, 1),
            }
            # the first round is the warm-up of all three
            for name in found if number else ():
                found[name].append(figures[name])
        return {
            "machine": f"{info['engine']['processor']}, {platform.system()}",
            "engine": f"{engine['name']} {precision}",
            "documents": len(texts),
            "windows": len(cut),
            "tokens": tokens,
            "clients": clients,
            "documents_a_request": group,
            "rounds": rounds,
            "tokens_per_second": {k: round(statistics.median(v)) for k, v in found.items()},
            "http_over_in_process": _ratio(found, "http", "in process"),
            "http_over_onnxruntime_fp32": _ratio(found, "http", "onnxruntime fp32"),
            "padding_waste": round(service.metric("docsplit_padding_waste_ratio"), 4),
            "ready_seconds": round(service.ready_seconds, 2),
            "peak_rss_mb": round(service.peak_rss_mb()),
        }


def _ratio(rounds: dict[str, list[float]], over: str, under: str) -> float:
    pairs = zip(rounds[over], rounds[under], strict=True)
    return round(statistics.median(a / b for a, b in pairs), 3)


def _print(result: dict[str, object]) -> None:
    table = Table("figure", "value")
    for name, value in result.items():
        table.add_row(name, json.dumps(value) if isinstance(value, dict) else str(value))
    Console().print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.comparison.overhead"
    )
    parser.add_argument("--data", type=Path, default=documents.PEPS, help="JSONL or Parquet")
    parser.add_argument("--split", help="only rows with this value in the column split")
    parser.add_argument("--bundle", type=Path, default=start_bundle.BUNDLE)
    parser.add_argument("--documents", type=int, default=64, help="number of documents to draw")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--group", type=int, default=16, help="documents per request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("flags", nargs="*", help="flags of docsplit-serve, after --")
    return parser.parse_args()


if __name__ == "__main__":
    main()
