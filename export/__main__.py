"""``docsplit-export``: the command line of the export."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from docsplit.bundles.manifest import (
    MOST_FIRST_WINDOW,
    Exporter,
    PrecisionName,
    WeightUnit,
    WindowWeights,
)
from export.options import add_gate_options, add_options, held_out, interruptible

if TYPE_CHECKING:
    from rich.console import Console

_INTERRUPTED = 130

EPILOG = """\
The checkpoint is a sentence-transformers or transformers folder, a name on the Hugging Face hub,
or a folder with an ONNX graph in fp32: an encoder, or a cross-encoder, of which it makes a
re-ranker. docs/reference/bundle.md lists the architectures; a message names what is rejected.

The command writes a graph only if its outputs on real text, and its quality on the given held-out
data, are close to the fp32 source's, and everything is finite; docs/how-to/export.md has the
thresholds. If a graph misses one, the command measures which operators cost most and keeps those in
floating point.

The exit code is 0 if DEST has every form, 3 if it lacks a form that failed, and 1 if DEST did not
change; 130 if the command was interrupted.

Three commands read an existing bundle:

  docsplit-export inspect BUNDLE    what is inside
  docsplit-export verify BUNDLE     check every digest and run the gate again
  docsplit-export to-sentence-transformers BUNDLE FOLDER
                                    write a folder for its ONNX and OpenVINO backends

example:
  docsplit-export sentence-transformers/all-MiniLM-L6-v2 bundles/minilm \\
      --max-tokens 512 --licence Apache-2.0 --retrieval data/scifact --probe data/bbc.parquet
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``docsplit-export``; returns the exit code."""
    try:
        with interruptible():
            return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("docsplit-export: interrupted", file=sys.stderr)  # noqa: T201
        return _INTERRUPTED


def _run(given: Sequence[str]) -> int:
    if given and given[0] in ("inspect", "verify", "to-sentence-transformers"):
        return _over_a_bundle(given[0], given[1:])
    options = _parser().parse_args(given)
    # Imported after parsing: torch and openvino take seconds, and --help needs neither.
    from rich.console import Console

    from docsplit.bundles.format import load_any
    from docsplit.bundles.manifest import BundleError, Manifest, Parity, RerankerManifest
    from docsplit.corpora.fields import DataError
    from export.errors import ExportError, IncompleteError, explained
    from export.pipeline import Request, export
    from export.progress import Progress

    # paths and texts may contain what Rich takes for markup
    console = Console(stderr=True, markup=False)

    def note(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        unit, times = options.window_weights, options.first_window_times
        # the other options have the names of their fields
        values = vars(options) | {
            "precisions": options.precision,
            "thresholds": dict(options.threshold),
            "window_weights": WindowWeights(unit=unit, first=times),
            "held_out": held_out(options),
        }
        request = Request(**{field.name: values[field.name] for field in fields(Request)})
        with Progress(console) as progress:
            manifest: Manifest | RerankerManifest = export(request, progress.report, note)
            code = 0
    except IncompleteError as error:
        _refuse(console, error)
        manifest, code = load_any(options.dest, verify=False).manifest, 3
    except (ExportError, BundleError, DataError) as error:
        _refuse(console, error)
        return 1
    except OSError as error:
        _refuse(console, f"{options.dest}: not written: {explained(error)}")
        return 1
    for name, precision in manifest.precisions.items():
        parity = precision.parity
        console.print(f"{name}: {parity}", highlight=False)
        for task in parity.tasks if isinstance(parity, Parity) else ():
            console.print(f"{name}: {task}", highlight=False)
        for miss in precision.accepted:
            console.print(f"{name}: accepted although {miss}", style="yellow", highlight=False)
    # the source's window may be shorter than the model's last position
    window = f"windows of {manifest.max_tokens} tokens (--max-tokens)"
    console.print(f"{options.dest}: {manifest.name}, {window}, revision {manifest.revision[:12]}")
    return code


def _refuse(console: Console, reason: object) -> None:
    console.print(f"docsplit-export: {reason}", style="red", highlight=False, soft_wrap=True)


def _over_a_bundle(command: str, arguments: Sequence[str]) -> int:
    from rich.console import Console

    from docsplit.bundles.manifest import BundleError
    from docsplit.corpora.fields import DataError
    from export import conversion, inspection
    from export.errors import ExportError, explained

    try:
        if command == "inspect":
            return inspection.main(arguments)
        if command == "to-sentence-transformers":
            return conversion.main(arguments)
        return inspection.verify_main(arguments)
    except (ExportError, BundleError, DataError, OSError) as error:
        said = f"docsplit-export {command}: {explained(error)}"
        Console(stderr=True, markup=False).print(said, style="red", highlight=False, soft_wrap=True)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="docsplit-export",
        description="Turn an encoder checkpoint into a bundle that docsplit-serve mounts.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="checkpoint: a folder or a hub name")
    parser.add_argument("dest", metavar="DEST", type=Path, help="folder of the new bundle")
    parser.add_argument("--name", help="the bundle's name (default: DEST's last part)")
    parser.add_argument(
        "--source-name", help="the name of the source in the lineage (default: hub or folder name)"
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="window, special tokens included; at most the model's last position "
        "(default: the source's window)",
    )
    parser.add_argument(
        "--tokenizer",
        choices=("file", "class"),
        help="which tokenizer the model was trained with, if tokenizer.json and the class that "
        "transformers builds split texts differently",
    )
    parser.add_argument(
        "--special-tokens-in-text",
        choices=("control", "text"),
        help="what [SEP] and the like in a text are: control tokens of the model, or characters "
        "like any other (default: control, unless the checkpoint has split_special_tokens)",
    )
    parser.add_argument(
        "--window-weights",
        choices=get_args(WeightUnit),
        default="tokens",
        help="what a window's weight in the document's vector is (default: its tokens); tables, "
        "numbers and code have few letters for their tokens",
    )
    parser.add_argument(
        "--first-window-times",
        type=_first_window,
        default=1.0,
        metavar="TIMES",
        help="how many times the weight of the first window counts, because it often says what "
        f"the document is about; up to {MOST_FIRST_WINDOW:g} (default: 1)",
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the model code in the folder of the weights; long checkpoints of "
        "docsplit-train need it; only for sources that you trust",
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=("fp16", "packed", "int8"),
        help="forms to write (default: fp16 and int8; for a long checkpoint only fp16); packed is "
        "fp16 without padding, for CUDA; writing it needs a GPU to measure it",
    )
    parser.add_argument(
        "--keep-float",
        type=_pattern,
        metavar="REGEX",
        help="operators that int8 leaves in floating point, matched from the start of their names, "
        "e.g. '.*layer.0/output/dense/MatMul'; improves parity, costs size and speed",
    )
    parser.add_argument(
        "--licence", help="SPDX identifier of the weights' licence (default: the model card's)"
    )
    add_gate_options(parser)
    parser.add_argument(
        "--accept",
        nargs="+",
        default=[],
        choices=get_args(PrecisionName),
        help="forms to write even if they miss a threshold, or if the only graph of an ONNX folder "
        "is in fp16; the bundle, /info and the log of the service then name what they miss",
    )
    parser.add_argument(
        "--through",
        choices=get_args(Exporter),
        default="torch",
        help="what writes the fp32 graph: torch.onnx (default), or optimum, with its configuration "
        "for the architecture and its optimisation O3; the command then compares both graphs",
    )
    parser.add_argument(
        "--optimum-cli",
        metavar="PROGRAM",
        default="optimum-cli",
        help="optimum-cli of an environment that has optimum-onnx (default: the one on PATH)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing bundle at DEST")
    add_options(parser)
    return parser


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid regular expression ({error})"
        ) from None
    return text


def _first_window(text: str) -> float:
    try:
        times = float(text)
    except ValueError:
        times = 0.0
    if not 0 < times <= MOST_FIRST_WINDOW:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number above 0 and up to {MOST_FIRST_WINDOW:g}"
        )
    return times


if __name__ == "__main__":
    sys.exit(main())
