"""Embeds the texts of one commit, and names the texts that cannot be embedded."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import UnusableInputError
from service.index.rows.record import Encoding, encoded


@dataclass(slots=True)
class Encoded:
    """The results for some texts.

    Attributes:
        encodings: by id.
        refused: a line for each text that could not be embedded.
        tokens: number of embedded tokens, without special tokens.
    """

    encodings: dict[str, Encoding] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    tokens: int = 0


# embeds texts by id
Encode = Callable[[Mapping[str, str]], Awaitable[Encoded]]


async def encode_texts(embedder: BackgroundEmbedder, texts: Mapping[str, str]) -> Encoded:
    """Encodings of texts by id.

    Raises:
        EngineFailedError: from the batcher.
    """
    result = Encoded()
    for name, outcome in zip(texts, await embedder(list(texts.values())), strict=True):
        if isinstance(outcome, UnusableInputError):
            result.refused.append(f"{name}: {outcome.reason}")
        else:
            result.encodings[name] = encoded(outcome)
            result.tokens += outcome.tokens
    return result
