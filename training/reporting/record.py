"""Data, course, costs and metrics of a run for ``training.json``."""

import json
import resource
from dataclasses import asdict
from typing import Any

import torch

from training.evaluation.validation import Validation
from training.settings import Settings
from training.trainer.opening import Opened


def run_record(
    settings: Settings,
    opened: Opened,
    *,
    steps: int,
    stopped_early: bool,
    seen: dict[str, int],
    processes: int,
    device: torch.device,
    seconds: float,
    before: Validation | None,
    after: Validation | None,
) -> dict[str, Any]:
    """The record of a finished run, as plain values.

    Args:
        seen: documents and tokens of all steps.
        seconds: time since the run was opened or last resumed.
        before: validation of the start weights.
        after: validation of the written model.
    """
    objective = settings.objective
    return {
        "settings": json.loads(settings.model_dump_json()),
        "objective": {
            "view": objective.view,
            "contrastive_loss": objective.contrastive,
            "mlm_weight": objective.mlm_factor,
            "mlm_head": opened.head_origin,
        },
        "data": {
            **asdict(opened.cache.counts),
            "training_documents": len(opened.train),
            "held_out_documents": len(opened.held),
            "links": opened.graph.counts if opened.graph else None,
            "cache": opened.cache.root.name,
        },
        "seed": settings.run.seed,
        "steps": steps,
        "stopped_early": stopped_early,
        "seen": seen,
        "processes": processes,
        "device": _device_name(device),
        "seconds": seconds,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "metrics": {
            "before": asdict(before) if before else None,
            "after": asdict(after) if after else None,
        },
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
