"""Embed texts that are already token ids."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from docsplit.windowing.documents import pad
from training.backbones.encoder import Encoder
from training.data.chunks import plan_chunks, shared
from training.data.specials import Specials
from training.losses.contrastive import pool_windows
from training.processes import Processes
from training.views.types import Ids, View
from training.views.windows import pack_windows


def embed_texts(
    texts: Sequence[View],
    encoder: Encoder,
    specials: Specials,
    processes: Processes,
    *,
    max_tokens: int,
    windows: int = 1,
    chunk_tokens: int = 2048,
) -> Tensor:
    """Unit vectors of texts. Windows are pooled as in the service.

    Args:
        texts: pieces of token ids without special tokens.
        encoder: in training or evaluation mode. The function restores the mode.
        specials: the tokenizer's special tokens.
        processes: the processes that share the work. Each gets all vectors.
        max_tokens: longest window, special tokens included.
        windows: maximum number of windows of a text.
        chunk_tokens: approximate number of tokens to encode at once.

    Returns:
        float32 ``[texts, width]`` on the CPU.
    """
    rows: list[Ids] = []
    owner: list[int] = []
    weight: list[int] = []
    for number, text in enumerate(texts):
        for ids in pack_windows(text, max_tokens - specials.count, windows):
            rows.append(specials.wrap(ids))
            owner.append(number)
            weight.append(len(ids))
    chunks = plan_chunks([len(row) for row in rows], chunk_tokens, processes.count)
    full = torch.zeros(len(rows), encoder.backbone.config.hidden_size, device=processes.device)
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode():
        for number in shared(len(chunks), processes.rank, processes.count):
            chunk = chunks[number]
            full[chunk] = _encode([rows[i] for i in chunk], encoder, specials.pad, processes)
        processes.sum(full)
    encoder.train(was_training)
    pooled = pool_windows(
        full.cpu(), torch.tensor(owner), torch.tensor(weight, dtype=torch.float32), len(texts)
    )
    return F.normalize(pooled, dim=-1)


def _encode(rows: list[Ids], encoder: Encoder, pad_token_id: int, processes: Processes) -> Tensor:
    ids, mask = map(torch.from_numpy, pad(rows, pad_token_id))
    pooled: Tensor = encoder(ids.to(processes.device), mask.to(processes.device))[1]
    return pooled
