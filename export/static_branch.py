"""A static branch beside a transformer: token vectors that do not depend on the context.

The training copies this file into the folder of an encoder with such a branch.
``SentenceTransformer`` then opens the folder with ``trust_remote_code=True`` even if this package
is not installed. The file therefore imports only torch and sentence-transformers.

A transformer compresses a text into what it means and loses many of its words. The branch keeps
them: it is the weighted mean of one trained vector for each token. Its share of the cosine is
fixed, so the cosine of two texts is the weighted mean of two cosines, as in hybrid search by words
and by vectors.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from sentence_transformers.sentence_transformer.modules import Module
from torch import Tensor

FILE = "static_branch.py"
# the class in modules.json; the library looks for the file in the checkpoint's folder
REFERENCE = "static_branch.StaticBranch"


class StaticBranch(Module):
    """Append the static vector of a text to the vector that the modules before computed.

    Attributes:
        table: int8 ``[tokens, width]``, the tokens' vectors.
        scale: float16 ``[tokens, 1]``, factor of each row of ``table``.
    """

    config_keys = ["tokens", "width", "share"]  # noqa: RUF012 - declared so by the base class
    table: Tensor
    scale: Tensor

    def __init__(self, tokens: int, width: int, share: float) -> None:
        """Create a branch whose tokens have no vectors yet; ``fill`` sets them.

        Args:
            tokens: size of the vocabulary.
            width: dimensions of the tokens' vectors.
            share: share of the branch in the cosine, between 0 and 1.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.tokens, self.width, self.share = tokens, width, share
        self.register_buffer("table", torch.zeros(tokens, width, dtype=torch.int8))
        self.register_buffer("scale", torch.zeros(tokens, 1, dtype=torch.float16))

    @torch.no_grad()
    def fill(self, vectors: Tensor) -> None:
        """Store the tokens' vectors in 8 bits, each row with a factor of its own.

        Args:
            vectors: float ``[tokens, width]``; only the ratios of the rows' lengths count. Rows of
                zeros are tokens that do not count, such as special ones.
        """
        largest = vectors.abs().amax(1, keepdim=True)
        step = (largest / largest.max()).half().float() / 127
        rounded = (vectors / largest.max() / step.clamp(min=1e-12)).round()
        self.table.copy_(rounded.clamp(-127, 127).to(torch.int8))
        self.scale.copy_(step * 127)

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """Replace ``sentence_embedding`` float ``[batch, dimensions]`` by float32
        ``[batch, dimensions + width]`` of length 1. Reads ``input_ids`` and ``attention_mask``,
        int64 ``[batch, tokens]``."""
        ids, mask = features["input_ids"], features["attention_mask"].float()
        same = (ids[:, :, None] == ids[:, None, :]).float() * mask[:, None, :]
        count = same.sum(2).clamp(min=1)
        # a token that occurs c times counts 1 + log c times: sublinear term frequency
        weight = mask * (1 + count.log()) / count
        rows = self.table[ids].float() * self.scale[ids].float()
        static = F.normalize((rows * weight[:, :, None]).sum(1), dim=1)
        contextual = F.normalize(features["sentence_embedding"].float(), dim=1)
        parts = [(1 - self.share) ** 0.5 * contextual, self.share**0.5 * static]
        features["sentence_embedding"] = torch.cat(parts, 1)
        return features

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write configuration and weights into the module's folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,
        **_: Any,
    ) -> "StaticBranch":
        """Read a branch that ``save`` wrote. The arguments are those of the base class."""
        where: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        branch = cls(**cls.load_config(model_name_or_path, **where))
        cls.load_torch_weights(model_name_or_path, model=branch, **where)
        return branch
