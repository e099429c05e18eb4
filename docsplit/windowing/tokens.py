"""From texts to token ids and character offsets."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import FixedLength
from tokenizers.pre_tokenizers import Sequence as Splits

from docsplit.windowing.known_words import KnownWords, offsets_of, reads_words
from docsplit.windowing.sentences import sentence_starts
from docsplit.windowing.windows import Ids, Positions

Range = tuple[int, int]

SIZE = 16_384
# the longest piece with the characters around it, for every text
LONGEST = 2 * SIZE
# characters on each side of a piece that decide how its edges are split
AROUND = 256
_MOST = LONGEST - 2 * AROUND

_BLANK = re.compile(r"(?<=\S)\s")
_AFTER_PUNCTUATION = re.compile(r"(?<=[^\w\s])")


def ranges(text: str) -> Iterator[Range]:
    """Yield ascending ranges of characters, with ``AROUND`` on both sides at most ``LONGEST`` long.

    A piece ends before white space if there is any, else after punctuation, and without either
    inside a word.

    Args:
        text: of any length.
    """
    begin = 0
    while len(text) - begin > _MOST:
        first, last = begin + SIZE, begin + _MOST
        found = _BLANK.search(text, first, last) or _AFTER_PUNCTUATION.search(text, first, last)
        end = found.start() if found else last
        yield begin, end
        begin = end
    yield begin, len(text)


Side = Literal["left", "right"]


# Unicode has no white space above; looking through all of it would take a tenth of a second
_SPACES = [point for point in range(1 << 16) if chr(point).isspace()]
_IS_SPACE = np.zeros(_SPACES[-1] + 2, dtype=np.bool_)
_IS_SPACE[_SPACES] = True


@dataclass(frozen=True)
class Tokens:
    """A tokenised text, without special tokens.

    Attributes:
        ids: int32 ``[tokens]``.
        find_starts: computes ``starts``.
        prompt: how many of the first tokens belong to the prompt.
        complete: False if tokenising stopped at its limit before the end of the text.
    """

    ids: Ids
    find_starts: Callable[[], Positions]
    prompt: int
    complete: bool = True

    @cached_property
    def starts(self) -> Positions:
        """Character offset of each token, int64 ``[tokens]``; a text of one window needs none."""
        return self.find_starts()


class DocumentTokenizer:
    """The bundle's tokenizer, applied to whole documents.

    Args:
        source: path of a ``tokenizer.json``, or its loaded content.
        max_tokens: longest model input, special tokens included.
        language: language of the sentence rules; see ``sentence_starts``.

    Raises:
        ValueError: the special tokens around a text fill all of ``max_tokens``.
    """

    def __init__(self, source: Path | Tokenizer, max_tokens: int, language: str = "en") -> None:
        self._tokenizer = (
            Tokenizer.from_file(str(source))
            if isinstance(source, Path)
            else Tokenizer.from_str(source.to_str())
        )
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._language = language
        added = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        self._known_words = KnownWords(self.whole, added) if reads_words(self._tokenizer) else None
        model = self._tokenizer.model
        if isinstance(model, WordPiece):
            # it makes one unknown token of a longer word, so all such words would be equal
            parts = FixedLength(model.max_input_chars_per_word)
            former = self._tokenizer.pre_tokenizer
            self._tokenizer.pre_tokenizer = Splits([former, parts] if former else [parts])
        self._unknown = self._tokenizer.token_to_id(getattr(model, "unk_token", None) or "<unk>")
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        full = self._tokenizer.encode("a").ids
        at = next((i for i in range(len(full)) if full[i : i + len(plain)] == plain), 0)
        self.prefix = np.array(full[:at], dtype=np.int32)
        self.suffix = np.array(full[at + len(plain) :], dtype=np.int32)
        self.capacity = max_tokens - len(self.prefix) - len(self.suffix)
        if self.capacity < 1:
            raise ValueError(f"special tokens leave no room in {max_tokens} tokens")

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str, prompt: str = "") -> Tokens:
        """Tokenise all of ``prompt + text``, of any length.

        Offsets count characters of ``text``; prompt tokens have offset 0.
        """
        steps = self.encoding(text, prompt)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                tokens: Tokens = ended.value
                return tokens

    def encoding(
        self, text: str, prompt: str = "", limit: int | None = None, side: Side = "right"
    ) -> Generator[None, None, Tokens]:
        """Like ``encode``, but pause between the pieces of a long text.

        Args:
            text: of any length.
            prompt: tokenised together with the start of the text.
            limit: stop after the piece in which the text exceeds so many tokens; None: never.
            side: begin at the start of the text for ``right``, at its end for ``left``.
        """
        if not prompt and len(text) <= LONGEST:
            ids, offsets = self._read(text)
            return Tokens(ids, lambda: offsets()[:, 0], 0)
        joined = prompt + text if prompt else text
        spans: Iterable[Range] = ranges(joined)
        if side == "left":
            spans = reversed(list(spans))
        found: list[tuple[Ids, Positions, Positions]] = []
        count = 0
        complete = True
        for begin, end in spans:
            if found:
                yield
                if limit is not None and count > limit:
                    complete = False
                    break
            part = self._part(joined, begin, end)
            found.append(part)
            count += int((part[2] > len(prompt)).sum())
        if side == "left":
            if not complete and prompt:
                found.append(self._part(prompt, 0, len(prompt)))
            found.reverse()
        ids, starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
        # a byte-level tokenizer gives the blank at the prompt's end to the first word of the text
        in_prompt = int(np.searchsorted(ends, len(prompt), side="right"))
        in_text = np.maximum(starts - len(prompt), 0)
        return Tokens(ids, lambda: in_text, in_prompt, complete)

    def unknown(self, tokens: Tokens) -> int:
        """How many tokens of a text stand for what the vocabulary lacks."""
        return int(np.count_nonzero(tokens.ids[tokens.prompt :] == self._unknown))

    def count(self, text: str) -> int:
        """Number of tokens of ``text``, without special tokens."""
        return len(self.encode(text).ids)

    def _part(self, text: str, begin: int, end: int) -> tuple[Ids, Positions, Positions]:
        """Ids, starts and ends of the tokens that start in a piece, as the whole text has them.

        Some tokenizers treat the start of a text like a word's, or join punctuation and line ends.
        So the tokenizer reads a piece together with the characters around it.
        """
        first = max(begin - AROUND, 0)
        ids, offsets = self._read(text[first : end + AROUND])
        starts, ends = offsets().T + first
        # where offsets are trimmed, a blank at the end of a text starts behind it
        own = (starts >= begin) & ((starts < end) | (end == len(text)))
        return ids[own], starts[own], ends[own]

    def _read(self, text: str) -> tuple[Ids, Callable[[], Positions]]:
        """Ids of a text, and what computes the start and end of each token, ``[tokens, 2]``."""
        known = None if self._known_words is None else self._known_words.read(text)
        if known is not None:
            return known
        encoding = self.whole(text)
        # a text of one window needs no offsets
        return np.array(encoding.ids, dtype=np.int32), lambda: offsets_of(encoding)

    def whole(self, text: str) -> Encoding:
        """A text in one call, without special tokens; it blocks no other thread of Python."""
        # encode_batch releases the GIL, encode does not
        [encoding] = self._tokenizer.encode_batch([text], add_special_tokens=False)
        return encoding

    def boundaries(self, text: str, tokens: Tokens) -> tuple[Positions, Positions]:
        """Token positions at which sentences and words start, both ascending, 0 excluded.

        Positions count from the first token after the prompt.
        """
        starts = tokens.starts[tokens.prompt :]
        at = np.searchsorted(
            starts, np.array(sentence_starts(text, self._language), dtype=np.int64)
        )
        sentences = np.unique(at[(at > 0) & (at < len(starts))])
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        before = points[np.maximum(starts[1:] - 1, 0)]
        spaces = _IS_SPACE[np.minimum(before, len(_IS_SPACE) - 1)] & (starts[1:] > 0)
        return sentences, np.flatnonzero(spaces) + 1

    def model_input(self, parts: Sequence[Ids]) -> Ids:
        """``parts`` joined, between the special tokens."""
        return np.concatenate((self.prefix, *parts, self.suffix))
