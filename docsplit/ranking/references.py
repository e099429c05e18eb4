"""Which documents a text refers to, by their identifiers and titles.

docs/explanation/relations.md, "Links from text", says how often the references are right.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from docsplit.ranking import forms
from docsplit.ranking.contexts import breaks, is_default, is_identifier, is_title
from docsplit.ranking.mentions import Matcher, Mention, joined, tokens, undivided

# letters and digits that a name must have, at least: shorter ones stand everywhere
_LEAST_IDENTIFIER = 4
_MOST_IDENTIFIER = 200
_LEAST_TITLE = 4
_LETTER = re.compile(r"[^\W\d_]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010](?=[^\W\d_])")
# "1706.03762" may be any measured value
_DECIMAL = re.compile(r"\d+[.,]\d+")
# after an identifier with which a title may begin
_TITLE_CUT = re.compile(r"\s*(?:[:–—|(\[]|\s-\s|\sof\s|$)")
_SERIES = re.compile(r"[A-Z]{2,8}[ -]?\d{2,6}")
_MOST_CUTS = 4
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
        form: what the place was read as; empty for a title.
    """

    cited: int
    start: int
    end: int
    form: str


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
        # by the key of an identifier or the tokens of another name
        self._owners: dict[str, int] = {}
        # by the work of identifiers with a version
        self._works: dict[str, int] = {}
        # of names that count in some texts only: one document for each rule
        self._limited: dict[str, dict[int, int]] = {}
        # of the names that have some
        self._marks: dict[str, frozenset[str]] = {}
        for number, document in enumerate(documents):
            for identifier, rule in _identifiers(document, rules, ids=ids):
                for name in _forms(identifier):
                    self._add_identifier(name, number, rule)
                    if ":" not in name and name in self._owners and (marks := breaks(identifier)):
                        self._marks[name] = self._marks.get(name, marks) | marks
        self._titles: dict[str, int] = {}
        begins: dict[str, int] = {}
        for number, document in enumerate(documents if titles else ()):
            for name in _titles(document.title):
                if name not in self._owners:
                    self._add(self._titles, name, number)
            for name in _begins(document.title):
                self._add(begins, name, number)
        # identifiers with which titles begin, unless they belong to another document
        self._owners = begins | self._owners
        names = [*self._owners, *self._titles]
        self.names = len(names)
        owners = (*self._owners.values(), *self._titles.values())
        self.ambiguous = owners.count(_AMBIGUOUS)
        self._families = forms.families(names)
        # a name of tokens has no colon; of a series there is the plural, too
        plain = [name for name in self._owners if ":" not in name]
        words = filter(None, dict.fromkeys(map(_plural, plain)))
        self._names = [*dict.fromkeys((*plain, *self._titles, *words))]
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
        read = forms.read(text, self._families)
        found = [*self._keyed(islice(read, MOST_READ), citing)]
        starts = [one.start for one in found]
        whole = joined(text)
        mentions = self._matcher.find(whole)
        for one in self._judged(whole, citing, islice(mentions, MOST_READ)):
            before = bisect_left(starts, one.end)
            if not before or found[before - 1].end <= one.start:
                found.append(replace(one, end=undivided(text, one.start, one.end)))
        found.sort(key=attrgetter("start"))
        return found, next(mentions, None) is not None or next(read, None) is not None

    def _keyed(
        self, read: Iterable[tuple[int, Iterable[forms.Key]]], citing: str
    ) -> Iterator[Reference]:
        last = (0, 0)
        for start, keys in read:
            for end, key in keys:
                number = self._owner(key, citing)
                # the numbers of a range share a place
                if number >= 0 and (start >= last[1] or (start, end) == last):
                    last = (start, end)
                    if self._documents[number].id != citing:
                        yield Reference(number, start, end, key)
                if number != _NOBODY:
                    break

    def _judged(self, text: str, citing: str, mentions: Iterable[Mention]) -> Iterator[Reference]:
        for mention in mentions:
            name = self._names[mention.name]
            word, _, rest = name.partition(" ")
            if name not in self._titles and (not rest or rest.isdigit()):
                members = forms.series(text, mention.start, word if rest else word[:-1])
                if not rest or len(members) > 1:
                    yield from self._keyed(members, citing)
                    continue
            number = self._owner(name, citing)
            if number in (_AMBIGUOUS, _NOBODY) or self._documents[number].id == citing:
                continue
            place = (mention.start, mention.end)
            if title := name not in self._owners:
                written = self._documents[number].title
                counts = is_title(text, *place, written, name.count(" ") + 1)
            else:
                counts = is_identifier(text, *place, name, self._marks.get(name, frozenset()))
            if counts:
                yield Reference(number, *place, "" if title else name)

    def _add_identifier(self, name: str, number: int, rule: int | None) -> None:
        if rule is None:
            self._add(self._owners, name, number)
            if " " in name and ":" in name:
                self._add(self._works, _work(name), number)
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
        # a version counts as its work, if the index has no other
        for owners, own in (
            (self._owners, name),
            (self._titles, name),
            (self._owners, _work(name)),
        ):
            if own in owners:
                return owners[own]
        return self._works.get(_work(name), _NOBODY)


def _work(name: str) -> str:
    """The name without the version that a key may have."""
    return name.partition(" ")[0] if ":" in name else name


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
    """An identifier as it is looked for.

    There are none without a digit, of a single number, as short as "A-1", or too long to be one.
    """
    if len(identifier) > _MOST_IDENTIFIER:
        return ()
    if key := forms.key(identifier):
        return (key,)
    identifier = forms.stem(identifier)
    parts = tokens(identifier)
    numbered = len(parts) > 1 and any(map(str.isdigit, parts))
    if not numbered or sum(map(len, parts)) < _LEAST_IDENTIFIER or _DECIMAL.fullmatch(identifier):
        return ()
    return (" ".join(parts),)


def _plural(name: str) -> str:
    """The word before several numbers of a series: "peps" of "pep 484"; otherwise nothing."""
    word, _, number = name.partition(" ")
    series = number.isdigit() and word.isalpha() and len(word) > 1 and not word.endswith("s")
    return f"{word}s" if series else ""


def _titles(title: str) -> Iterable[str]:
    """The tokens of a title of several words; a hyphen in it may stand at a line's end."""
    name = " ".join(tokens(title))
    long = len(name.replace(" ", "")) >= _LEAST_TITLE
    if not (long and " " in name and _LETTER.search(name)) or is_default(title):
        return ()
    return dict.fromkeys((name, " ".join(tokens(_HYPHEN.sub("", title)))))


def _begins(title: str) -> Iterable[str]:
    """The identifier with which a title begins, with and without its version."""
    for cut in islice(_TITLE_CUT.finditer(title), _MOST_CUTS):
        given = title[: cut.start()]
        if name := forms.key(given) or (_SERIES.fullmatch(given) and " ".join(tokens(given))):
            return dict.fromkeys((name, _work(name)))
    return ()
