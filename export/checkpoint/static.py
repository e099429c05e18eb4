"""Static embeddings, as model2vec makes them: a vector for each token, and their mean."""

from types import SimpleNamespace
from typing import Any, cast

import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

MODEL_TYPE = "static"
# They have no positions, so no longest window. These are the usual and the longest one of a bundle,
# which is the longest document that the service takes.
WINDOW, LONGEST = 8_192, 262_144
_PADDING = ("[PAD]", "<pad>")


class StaticEncoder(nn.Module):
    """The vectors of the tokens, in the place of an encoder."""

    def __init__(self, table: nn.EmbeddingBag) -> None:
        super().__init__()
        rows, width = table.weight.shape
        self.rows = nn.Embedding(rows, width, _weight=table.weight.detach(), _freeze=True)
        self.config = SimpleNamespace(
            model_type=MODEL_TYPE,
            hidden_size=table.embedding_dim,
            vocab_size=table.num_embeddings,
            max_position_embeddings=LONGEST,
            # no attention; the optimizer wants a divisor of the dimensions
            num_attention_heads=1,
        )

    def get_input_embeddings(self) -> nn.Embedding:
        """The vectors."""
        return self.rows

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """int64 ``[batch, tokens]`` twice → float32 ``[batch, tokens, dimensions]``."""
        return SimpleNamespace(last_hidden_state=self.rows(input_ids))


class WindowedEmbedding(StaticEmbedding):
    """A ``StaticEmbedding`` that reads windows, and batches of padded ids.

    Args:
        module: the checkpoint's module.
    """

    max_seq_length: int = WINDOW

    def __init__(self, module: StaticEmbedding) -> None:
        super().__init__(module.tokenizer, embedding_weights=module.embedding.weight.detach())
        self.tokenizer: Any = _plain(module.tokenizer)

    @property
    def auto_model(self) -> StaticEncoder:
        """The vectors of the tokens."""
        return StaticEncoder(self.embedding)

    def preprocess(self, inputs: Any, prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Ids of texts, one text after the other."""
        texts = [(prompt or "") + text for text in inputs]
        encodings = self.tokenizer.backend_tokenizer.encode_batch(texts)
        return _bags([torch.tensor(one.ids[: self.max_seq_length]) for one in encodings])

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Any]:
        """Add the means to ``features``, which may hold padded ids and their mask."""
        mask = features.get("attention_mask")
        if mask is not None:
            pairs = zip(features["input_ids"], mask, strict=True)
            features = features | _bags([ids[kept.bool()] for ids, kept in pairs])
        found: dict[str, Any] = super().forward(features)
        return found


def _bags(rows: list[Tensor]) -> dict[str, Tensor]:
    """The form that ``torch.nn.EmbeddingBag`` takes: all ids, and where each text begins."""
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return {"input_ids": torch.cat(rows).long(), "offsets": ends[:-1]}


def _plain(tokenizer: Any) -> PreTrainedTokenizerFast:
    """The tokenizer without special tokens, which static embeddings do not read."""
    plain = type(tokenizer).from_str(tokenizer.to_str())
    plain.post_processor = None
    plain.no_truncation()
    # padding is masked, so any token serves
    known = [name for name in _PADDING if plain.token_to_id(name) is not None]
    padding = known[0] if known else plain.id_to_token(0)
    made: Any = PreTrainedTokenizerFast
    return cast(PreTrainedTokenizerFast, made(tokenizer_object=plain, pad_token=padding))
