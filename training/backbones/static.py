"""A table of token vectors in place of a transformer."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from training.data.cache import Numbers, TokenCache

_SEED = 20_000
# Length of a start vector for each unit of inverse document frequency. The length decides how far
# a step of the optimiser turns a vector; this one fits a learning rate of .01.
_START = 0.2


class StaticBackbone(nn.Module):
    """One trainable vector for each token of a vocabulary, whatever its context.

    A token that occurs c times in a row of tokens counts 1 + log c times, as in TF-IDF with
    sublinear term frequencies (Manning, Raghavan and Schütze 2008, "Introduction to Information
    Retrieval", section 6.4.1). Special tokens do not count.

    The vectors start random, as long as their token's inverse document frequency. Random vectors
    are almost orthogonal, so the cosine of two texts starts near that of TF-IDF (Johnson and
    Lindenstrauss 1984).

    Attributes:
        config: only ``hidden_size``, which the trainer reads.
    """

    words: Tensor

    def __init__(self, tokenizer: PreTrainedTokenizerBase, width: int) -> None:
        """Vectors of ``width`` dimensions for the tokens of ``tokenizer``."""
        super().__init__()
        rng = torch.Generator().manual_seed(_SEED)
        start = torch.randn(len(tokenizer), width, generator=rng) / width**0.5
        self.table = nn.Embedding(len(tokenizer), width, _weight=start)
        words = torch.ones(len(tokenizer), dtype=torch.bool)
        words[tokenizer.all_special_ids] = False
        self.register_buffer("words", words, persistent=False)
        self.config = SimpleNamespace(hidden_size=width, model_type="static")

    @torch.no_grad()
    def weigh(self, cache: TokenCache, documents: Numbers) -> None:
        """Give the vectors the length of their tokens' inverse document frequency.

        The frequencies are those of at most 100,000 of the documents.

        Args:
            cache: the token cache.
            documents: numbers of the training documents.
        """
        chosen = documents[:: max(1, -(-len(documents) // 100_000))]
        found = np.zeros(len(self.words), dtype=np.int64)
        for document in chosen:
            found[np.unique(np.concatenate(cache.sentences(int(document))))] += 1
        # BM25's form: 0 for tokens of half of the documents and more
        idf = np.log((len(chosen) - found + 0.5) / (found + 0.5)).clip(min=0)
        self.table.weight.mul_(torch.from_numpy(_START * idf).float().unsqueeze(1))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """The weighted vectors of the tokens, float ``[batch, tokens, width]``. Their mean has the
        direction of the text's vector. Both arguments are int64 ``[batch, tokens]``."""
        counted = self.words[input_ids] & attention_mask.bool()
        row = torch.arange(len(input_ids), device=input_ids.device).unsqueeze(1)
        # equal only for the same token of the same row
        keys = torch.where(counted, input_ids + row * len(self.words), -1)
        _, place, count = torch.unique(keys, return_inverse=True, return_counts=True)
        repeated = count[place].float()
        weight = counted * (1 + repeated.log()) / repeated
        weighted: Tensor = self.table(input_ids) * weight.unsqueeze(-1)
        return (weighted,)

    def vectors(self) -> Tensor:
        """The tokens' vectors, float ``[tokens, width]``; zero for special tokens."""
        vectors: Tensor = self.table.weight.detach() * self.words.unsqueeze(1)
        return vectors.cpu()
