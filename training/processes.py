"""One interface for one process or several."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import InitProcessGroupKwargs
from torch import Tensor

from docsplit.engines.choice import detect

_BUCKET_ELEMENTS = 1 << 23

# The others wait while one process prepares the data, which may take hours. Ten minutes is NCCL's
# default. torchrun itself notices a process that ended.
_PATIENCE = timedelta(days=7)

Precision = Literal["fp32", "bf16"]


class Processes:
    """The processes of a run (``torchrun``), their devices and their precision.

    The class sums gradients and does not average them. It does not use DistributedDataParallel,
    whose hooks allow neither several forward passes in a step nor unequal numbers of chunks.

    Attributes:
        precision: of the encoder.
    """

    def __init__(
        self, precision: Precision | Literal["auto"] = "fp32", *, cpu: bool = False
    ) -> None:
        """Join the process group of the environment. Without one, there is one process.

        Args:
            precision: ``auto`` is ``bf16`` on a GPU or processor that computes in it, else
                ``fp32``.
            cpu: use no accelerator.
        """
        # A second run in the same process may ask for another precision.
        if PartialState._shared_state:
            AcceleratorState._reset_state()
        # Without this setting, accelerate treats processes without an accelerator as
        # separate runs, and each would write the whole run.
        cpu = cpu or not torch.accelerator.is_available()
        self.precision: Precision = best_precision(cpu=cpu) if precision == "auto" else precision
        self._accelerator = Accelerator(
            mixed_precision="bf16" if self.precision == "bf16" else "no",
            cpu=cpu,
            kwargs_handlers=[InitProcessGroupKwargs(timeout=_PATIENCE)],
        )
        self.device: torch.device = self._accelerator.device
        if self.device.type == "cuda":
            # cuDNN's attention plans each new shape for 6 ms, and a batch of texts has new shapes
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.rank: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the encoder."""
        context: AbstractContextManager[None] = self._accelerator.autocast()
        return context

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            self._accelerator.wait_for_everyone()

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over the processes, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is set in any process."""
        if self.count == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients over the processes, in buckets.

        A parameter without a gradient in every process keeps none, so that all optimisers skip it.
        """
        if self.count == 1:
            return
        held = [p for p in parameters if p.requires_grad]
        present = torch.tensor([float(p.grad is not None) for p in held], device=self.device)
        self.sum(present)
        gradients = []
        for parameter, has in zip(held, present.tolist(), strict=True):
            if has:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        bucket: list[Tensor] = []
        for gradient in gradients:
            bucket.append(gradient)
            if sum(g.numel() for g in bucket) >= _BUCKET_ELEMENTS:
                self._sum_bucket(bucket)
                bucket = []
        if bucket:
            self._sum_bucket(bucket)

    def _sum_bucket(self, bucket: list[Tensor]) -> None:
        flat = self.sum(torch.cat([gradient.flatten() for gradient in bucket]))
        sizes = [gradient.numel() for gradient in bucket]
        parts = flat.split(sizes)  # type: ignore[no-untyped-call]
        for gradient, total in zip(bucket, parts, strict=True):
            gradient.copy_(total.view_as(gradient))

    def close(self) -> None:
        """Leave the process group."""
        if self.count > 1:
            self._accelerator.end_training()
            if dist.is_initialized():
                dist.destroy_process_group()


def best_precision(*, cpu: bool = False) -> Precision:
    """The faster precision: ``bf16`` if the GPU, or without one the processor, computes in it."""
    if cpu or not torch.cuda.is_available():
        return "bf16" if detect().bf16 else "fp32"
    # older cards emulate bf16, slower than they compute in fp32
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
