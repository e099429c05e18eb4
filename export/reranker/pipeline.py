"""Turn a cross-encoder into a bundle for re-ranking, or write nothing."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from docsplit.bundles.format import seal_reranker
from docsplit.bundles.manifest import RankedPrecision, RerankerManifest, WindowWeights
from docsplit.windowing.pairs import PairTokenizer
from export.checkpoint.card import licence
from export.checkpoint.tokenizer import write_tokenizer
from export.checks.engines import Inputs
from export.checks.finite import check_weights
from export.checks.thresholds import check_figures
from export.destination import put_in_place
from export.errors import ExportError
from export.graphs.graph import OPSET
from export.passages import read_passages
from export.pipeline import Request, prepare, versions
from export.precisions import Forms
from export.progress import Report, unreported
from export.reranker.gate import PairGate
from export.reranker.graph import write_pair_graph
from export.reranker.pairs import inputs, make_pairs, rows
from export.reranker.source import PairSource, check_no_tasks, open_pair_source


def export_reranker(
    request: Request,
    report: Report = unreported,
    note: Callable[[str], None] = lambda line: None,
) -> RerankerManifest:
    """Write the bundle; arguments and errors are those of ``export.pipeline.export``."""
    check_figures(request.thresholds, reranker=True)
    check_no_tasks(request.source, request.held_out)
    if request.through != "torch":
        raise ExportError(f"{request.source}: is a re-ranker; --through optimum exports encoders")
    if request.window_weights != WindowWeights():
        raise ExportError(
            f"{request.source}: is a re-ranker; only encoders have weights of windows"
        )
    dest = prepare(request)
    report("opening the source")
    source = open_pair_source(
        request.source,
        source_name=request.source_name,
        max_tokens=request.max_tokens,
        trust_remote_code=request.trust_remote_code,
    )
    terms = request.licence or licence(source.name, source.card)
    report("checking the weights")
    check_weights(source)
    passages = read_passages(
        request.calibration, parity=request.paragraphs, max_tokens=source.max_tokens
    )
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        report("writing the tokenizer")
        tokenizer = write_tokenizer(source, bundle, [*passages.calibration, *passages.parity])
        joint = PairTokenizer(tokenizer, source.max_tokens, source.segment_offset)
        gate = PairGate(
            source,
            joint,
            make_pairs(passages.parity, joint),
            threads=request.threads,
            report=report,
            thresholds=request.thresholds,
        )
        report("tracing the fp32 graph")
        fp32 = scratch / "model.onnx"
        write_pair_graph(source, fp32)
        gate.check_trace(fp32)
        real = rows(joint, make_pairs(passages.calibration, joint))

        def calibration(size: int) -> list[Inputs]:
            # rows of similar length need little padding
            found = real if size == 1 else sorted(real, key=len)
            return inputs(found, size, int(source.tokenizer.pad_token_id))

        forms = Forms(
            source,
            fp32,
            calibration,
            gate,
            keep_float=request.keep_float,
            accept=request.accept,
            threads=request.threads,
            report=report,
            note=note,
        )
        written = forms.make(request.precisions or ("fp16", "int8"), bundle)
        report("sealing the bundle")
        manifest = seal_reranker(
            bundle,
            name=request.name or dest.name,
            max_tokens=source.max_tokens,
            pad_token_id=source.tokenizer.pad_token_id,
            segment_offset=source.segment_offset,
            precisions={
                name: RankedPrecision.model_validate(form) for name, form in written.forms.items()
            },
            licence=terms,
            lineage=_lineage(source, request, len(passages.calibration)),
        )
        put_in_place(bundle, dest, scratch, force=request.force, failed=written.failed.keys())
    written.check_complete(dest)
    return manifest


def _lineage(source: PairSource, request: Request, calibration: int) -> dict[str, object]:
    return {
        "source": source.name,
        "source_sha256": source.weights_digest(),
        "settings": {
            "architecture": type(source.encoder).__name__,
            "source_max_tokens": source.trained_tokens,
            "source_activation": source.activation,
            "opset": OPSET,
            "calibration": request.calibration.name if request.calibration else "examples/peps",
            "calibration_passages": calibration,
            "keep_float": request.keep_float or "",
        },
        "packages": versions(),
    }
