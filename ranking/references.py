"""Which documents a text refers to, by their identifiers and titles.

docs/explanation/relations.md, "Links from text", says how often the references are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ranking.contexts import breaks, is_identifier, is_title
from ranking.mentions import Matcher, Mention, tokens

# letters and digits that a name must have, at least: shorter ones stand everywhere
_LEAST_IDENTIFIER = 4
_MOST_IDENTIFIER = 200
_LEAST_TITLE = 4
_LETTER = re.compile(r"[^\W\d_]")
# limit of all names' tokens; 10^5 documents with titles have about a million
MOST_NAME_TOKENS = 4_000_000
# names that are read in one text: a text with more of them is no text
MOST_READ = 100_000
# in place of a document: a name of several documents, and one that counts in some texts only
_AMBIGUOUS = -1
_NOBODY = -2


@dataclass(frozen=True, slots=True)
class Pattern:
    """A form with one ``*`` at most, which stands for any characters."""

    form: str

    def rest(self, value: str) -> str | None:
        """The characters for which ``*`` stands; None if the value has another form."""
        head, star, tail = self.form.partition("*")
        if not star:
            return "" if value == head else None
        fits = len(value) >= len(head) + len(tail)
        if fits and value.startswith(head) and value.endswith(tail):
            return value[len(head) : len(value) - len(tail)]
        return None


_EVERY = Pattern("*")


@dataclass(frozen=True, slots=True)
class Rule:
    """A further name of documents: ``eip-*`` has the name ``ERC *``.

    Attributes:
        ids: form of the documents' ids.
        name: form of the name; ``*`` stands for the same characters as in the id.
        texts: form of the ids of those documents in whose texts the name counts.
    """

    ids: Pattern
    name: Pattern
    texts: Pattern = _EVERY

    @classmethod
    def parsed(cls, given: str) -> Rule:
        """A rule as ``IDS=NAME`` or ``IDS=NAME@TEXTS``, each a form with one ``*`` at most.

        Raises:
            ValueError: it has another form; the message says which is right.
        """
        ids, _, name = given.partition("=")
        name, _, texts = name.partition("@")
        forms = (ids, name, texts or "*")
        if not (ids and name) or any(form.count("*") > 1 for form in forms):
            raise ValueError(
                "IDS=NAME or IDS=NAME@TEXTS, each with one * at most, such as eip-*=ERC *"
            )
        return cls(*map(Pattern, forms))


@dataclass(frozen=True, slots=True)
class Named:
    """A document and its names.

    Attributes:
        id: an identifier if it has a digit.
        title: empty if it has none.
        identifiers: further ones, such as a DOI.
    """

    id: str
    title: str = ""
    identifiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a text that names another document.

    Attributes:
        cited: position of the document in the list of documents.
        start: first character.
        end: one past the last character.
        title: whether it is the title, otherwise an identifier.
    """

    cited: int
    start: int
    end: int
    title: bool


class References:
    """Finds references to documents; it only reads, so threads may share it.

    Args:
        documents: all documents.
        rules: for further names.
        ids: whether the documents' ids count.
        titles: whether titles count.

    Attributes:
        names: number of names.
        ambiguous: number of names that belong to several documents, which never count.
        left_out: number of names beyond the limits of a matcher.
    """

    def __init__(
        self,
        documents: Sequence[Named],
        rules: Sequence[Rule] = (),
        *,
        ids: bool = True,
        titles: bool = True,
    ) -> None:
        self._documents = documents
        self._rules = rules
        self._size = 0
        self.left_out = 0
        self._owners: dict[str, int] = {}
        # of names that count in some texts only: one document for each rule
        self._limited: dict[str, dict[int, int]] = {}
        # of the names that have some
        self._marks: dict[str, frozenset[str]] = {}
        for number, document in enumerate(documents):
            for identifier, rule in _identifiers(document, rules, ids=ids):
                for name in _forms(identifier):
                    self._add_identifier(name, number, rule)
                    if name in self._owners and (marks := breaks(identifier)):
                        self._marks[name] = self._marks.get(name, marks) | marks
        self._titles: dict[str, int] = {}
        for number, document in enumerate(documents if titles else ()):
            name = _title(document.title)
            if name and name not in self._owners:
                self._add(self._titles, name, number)
        self._names = [*self._owners, *self._titles]
        self.names = len(self._names)
        owners = (*self._owners.values(), *self._titles.values())
        self.ambiguous = owners.count(_AMBIGUOUS)
        self._matcher = Matcher(self._names)
        self.left_out += self._matcher.left_out

    def find(self, text: str, citing: str) -> tuple[list[Reference], bool]:
        """References to other documents, in the order of their places.

        Args:
            text: of a document.
            citing: id of the document.

        Returns:
            The references, and whether the text has more names than this reads.
        """
        mentions = self._matcher.find(text)
        found = list(self._judged(text, citing, islice(mentions, MOST_READ)))
        return found, next(mentions, None) is not None

    def _judged(self, text: str, citing: str, mentions: Iterable[Mention]) -> Iterator[Reference]:
        for mention in mentions:
            number = self._owner(self._names[mention.name], citing)
            if number in (_AMBIGUOUS, _NOBODY) or self._documents[number].id == citing:
                continue
            place, name = (mention.start, mention.end), self._names[mention.name]
            title = mention.name >= len(self._owners)
            if title:
                written = self._documents[number].title
                counts = is_title(text, *place, written, name.count(" ") + 1)
            else:
                counts = is_identifier(text, *place, name, self._marks.get(name, frozenset()))
            if counts:
                yield Reference(number, mention.start, mention.end, title)

    def _add_identifier(self, name: str, number: int, rule: int | None) -> None:
        if rule is None:
            self._add(self._owners, name, number)
        elif self._add(self._owners, name, _NOBODY):
            limited = self._limited.setdefault(name, {})
            if limited.setdefault(rule, number) != number:
                limited[rule] = _AMBIGUOUS

    def _add(self, owners: dict[str, int], name: str, number: int) -> bool:
        """Note that a document has a name; False if there are too many names."""
        if name not in owners:
            size = name.count(" ") + 1
            if self._size + size > MOST_NAME_TOKENS:
                self.left_out += 1
                return False
            self._size += size
            owners[name] = number
        elif owners[name] == _NOBODY:
            owners[name] = number
        elif number not in (_NOBODY, owners[name]):
            owners[name] = _AMBIGUOUS
        return True

    def _owner(self, name: str, citing: str) -> int:
        """The document that has a name in a text; rules for the text come first."""
        found = {
            number
            for rule, number in self._limited.get(name, {}).items()
            if self._rules[rule].texts.rest(citing) is not None
        }
        if len(found) == 1:
            return found.pop()
        if found:
            return _AMBIGUOUS
        return self._owners[name] if name in self._owners else self._titles[name]


def _identifiers(
    document: Named, rules: Sequence[Rule], *, ids: bool
) -> Iterator[tuple[str, int | None]]:
    """The identifiers of a document, each with the rule that limits it to some texts."""
    for given in (*([document.id] if ids else []), *document.identifiers):
        yield given, None
    for number, rule in enumerate(rules):
        rest = rule.ids.rest(document.id)
        if rest is not None:
            yield rule.name.form.replace("*", rest, 1), None if rule.texts == _EVERY else number


def _forms(identifier: str) -> Iterable[str]:
    """An identifier as it may stand in a text: with "PEP 484" also "PEPs 484".

    There are none without a digit, of a single number, as short as "A-1", or too long to be one.
    """
    parts = tokens(identifier[:_MOST_IDENTIFIER])
    size = sum(map(len, parts))
    if len(identifier) > _MOST_IDENTIFIER:
        return ()
    if size < _LEAST_IDENTIFIER or len(parts) < 2 or not any(part.isdigit() for part in parts):
        return ()
    series = len(parts) == 2 and not parts[0].isdigit() and not parts[0].endswith("s")
    plural = (f"{parts[0]}s {parts[1]}",) if series and len(parts[0]) > 1 else ()
    return (" ".join(parts), *plural)


def _title(title: str) -> str:
    """The tokens of a title that may be looked for: of several words; otherwise nothing."""
    name = " ".join(tokens(title))
    long = len(name.replace(" ", "")) >= _LEAST_TITLE
    return name if long and " " in name and _LETTER.search(name) else ""
