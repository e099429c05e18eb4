"""Is there a better way from windows to a document than the mean that counts their tokens?

    python -m studies.encoders.window_attention ENCODER --documents mix.jsonl.zst \
        --development runs/parts/development

Two ways learn from the vectors of windows, which are computed once: a weight for each window (gated
attention, Ilse et al. 2018, "Attention-based Deep Multiple Instance Learning", eq. 9, with a bias
for the place of the window), and one layer of self-attention before the mean. Both begin as the
mean. Each window of a document goes to one of two halves by coin flip; the halves are a positive
pair, and the documents of a batch come from one cluster, so that they are near (InfoNCE, tau .05).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn
from transformers import AutoTokenizer

from docsplit.corpora.documents import read_texts
from docsplit.windowing.documents import read
from docsplit.windowing.tokens import DocumentTokenizer
from studies.encoders.quick_measures import measures
from training.data.clusters import Neighbourhood
from training.data.specials import whole_text_tokenizer
from training.evaluation.encoders.folder import FolderEncoder
from training.evaluation.encoders.interface import Vectors
from training.evaluation.report.text import table
from training.evaluation.validation import mean_reciprocal_rank
from training.losses.contrastive import info_nce

MOST = 16
_LEAST = 4
_HELD_OUT = 512
_TEMPERATURE = 0.05


class Windows:
    """Vectors of the windows of texts, each text encoded once."""

    def __init__(self, path: str, max_tokens: int) -> None:
        self._encoder = FolderEncoder(path, path, max_tokens)
        tokenizer = AutoTokenizer.from_pretrained(path)
        self._tokenizer = DocumentTokenizer(whole_text_tokenizer(tokenizer), max_tokens)
        self._known: dict[str, tuple[Tensor, Tensor]] = {}

    def of(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """float ``[texts, MOST, dimensions]``, and the windows' tokens ``[texts, MOST]``."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        cut = [found[:MOST] for found in read(self._tokenizer, new)]
        pairs = list(zip(new, cut, strict=True))
        parts = [text[one.start : one.end] for text, found in pairs for one in found]
        if parts:
            ends = np.cumsum([len(found) for found in cut])[:-1]
            split = np.split(self._encoder.encode(parts, "first"), ends)
            for (text, found), vectors in zip(pairs, split, strict=True):
                own = torch.from_numpy(vectors)
                padded = torch.zeros(MOST, own.shape[1])
                padded[: len(own)] = own
                tokens = torch.zeros(MOST)
                tokens[: len(own)] = torch.tensor([max(1.0, one.tokens) for one in found])
                self._known[text] = padded, tokens
        known = [self._known[text] for text in texts]
        return torch.stack([v for v, _ in known]), torch.stack([t for _, t in known])


class Mean(nn.Module):
    """The mean that counts the windows' tokens, as the service pools."""

    def forward(self, windows: Tensor, tokens: Tensor) -> Tensor:
        """Unit vectors of documents; a window without tokens does not count."""
        return F.normalize((windows * tokens.unsqueeze(-1)).sum(1), dim=-1)


class Gate(Mean):
    """A learnt weight for each window."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.score = nn.Linear(width, 64), nn.Linear(64, 1)
        self.place = nn.Parameter(torch.zeros(MOST))
        nn.init.zeros_(self.score.weight)

    def forward(self, windows: Tensor, tokens: Tensor) -> Tensor:
        """Unit vectors of documents."""
        score = self.score(torch.tanh(self.hidden(windows))).squeeze(-1) + self.place
        return super().forward(windows, tokens * score.exp())


class Attention(Mean):
    """One layer of self-attention, whose change of the windows starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, windows: Tensor, tokens: Tensor) -> Tensor:
        """Unit vectors of documents."""
        found, _ = self.attention(windows, windows, windows, key_padding_mask=tokens == 0)
        return super().forward(windows + found, tokens)


def halves(tokens: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens of the windows in each half; no half is empty."""
    coin = torch.rand(tokens.shape, generator=rng)
    coin = coin.masked_fill(tokens == 0, 2.0)
    least = coin.argmin(1, keepdim=True)
    most = coin.masked_fill(tokens == 0, -1.0).argmax(1, keepdim=True)
    first = (coin < 0.5).scatter(1, least, True).scatter(1, most, False)
    return tokens * first, tokens * ~first


def report(measured: Sequence[tuple[str, int, dict[str, float]]]) -> str:
    """Markdown: a row for each way and number of steps."""
    rows = [
        [way, str(steps), *map("{:.3f}".format, found.values())] for way, steps, found in measured
    ]
    return table(["", "steps", *measured[0][2]], rows)


def main() -> None:
    """Train both ways, and print the measures after each stretch of steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("encoder", help="folder or hub name")
    add("--documents", type=Path, required=True)
    add("--development", type=Path, required=True)
    add("--max-tokens", type=int, default=256)
    add("--batch", type=int, default=2048)
    add("--steps", type=int, nargs="+", default=[20, 80, 320])
    add("--learning-rate", type=float, default=1e-3)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Windows(given.encoder, given.max_tokens)
    texts = [one.text for one in read_texts(given.documents)]
    windows, tokens = encoder.of(texts)
    long = (tokens > 0).sum(1) >= _LEAST
    windows, tokens = windows[long], tokens[long]
    rng = torch.Generator().manual_seed(0)
    order = torch.randperm(len(windows), generator=rng)
    held, taught = order[:_HELD_OUT], order[_HELD_OUT:]
    mean = Mean()
    vectors = mean(windows[taught], tokens[taught]).numpy()
    numbers = np.arange(len(taught))
    near = Neighbourhood.of(numbers, vectors, size=given.batch, seed=0, made_from="").clusters
    asked = halves(tokens[held], rng)
    measured: list[tuple[str, int, dict[str, float]]] = []

    def measure(name: str, steps: int, model: Mean) -> None:
        def encode(some: Sequence[str]) -> Vectors:
            pieces, counts = encoder.of(some)
            with torch.inference_mode():
                found: Vectors = model(pieces.to(device), counts.to(device)).cpu().numpy()
            return found

        found = measures(encode, given.development)
        with torch.inference_mode():
            pair = [model(windows[held].to(device), half.to(device)).cpu() for half in asked]
        found["held-out halves"] = mean_reciprocal_rank(*pair)
        measured.append((name, steps, found))
        print(report(measured[-1:]), flush=True)

    measure("mean", 0, mean)
    for kind in (Gate, Attention):
        torch.manual_seed(0)
        model = kind(windows.shape[2]).to(device)
        optimiser = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
        draw = np.random.default_rng(0)
        done = 0
        for stop in given.steps:
            for _ in range(done, stop):
                members = np.flatnonzero(near == draw.integers(near.max() + 1))
                members = draw.permutation(members)[: given.batch]
                chosen = taught[torch.from_numpy(members)]
                pieces = windows[chosen].to(device)
                first, second = (half.to(device) for half in halves(tokens[chosen], rng))
                loss = info_nce(
                    model(pieces, first), model(pieces, second), _TEMPERATURE, symmetric=True
                )
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            done = stop
            print(f"{kind.__name__}: step {done}, loss {float(loss.detach()):.4f}", flush=True)
            measure(kind.__name__.lower(), done, model)
    print(report(measured))


if __name__ == "__main__":
    main()
