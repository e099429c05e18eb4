"""Makes the examples of a training from stored examples and the labels that people gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from docsplit.heads.examples import MOST_EXAMPLES, Examples, check, digest
from docsplit.windowing.pooling import Vectors
from service.errors import InvalidError, NotFoundError
from service.index.indexes import Indexes
from service.learning import sources
from service.learning.labels import Labelled


@dataclass(frozen=True, slots=True)
class _Example:
    text: str
    labels: list[str]
    # by which a person labelled it
    index: str | None
    vector: Vectors | None = None
    # labels of a stored example of this text, which count again without the person's label
    replaced: list[str] | None = None

    @property
    def own(self) -> list[str] | None:
        """The labels of the stored example of this text; None if there is none."""
        return self.labels if self.index is None else self.replaced


async def gather(
    indexes: Indexes,
    stored: Examples | None,
    labelled: Sequence[Labelled],
    multi_label: bool | None = None,
    reserve: Callable[[int], None] = lambda _: None,
) -> tuple[Examples, list[Vectors | None]]:
    """The examples of a training, and the vectors of those that an index has.

    Documents that their index has no more are left out. Stored examples that an earlier training
    took from an index count only if that index is gone: its labels may have changed since. Of equal
    texts the latest label counts, and a label counts more than a stored example, whose own labels
    are kept: they count again once that label is removed. A classifier without examples gets the
    bundle of the first index. Texts of indexes of other bundles come without vectors.

    Args:
        stored: of the classifier; None if it has none.
        labelled: in the order in which the documents got their labels.
        multi_label: of a classifier without examples; None: whether a document has several labels
            or none.
        reserve: called with the characters of some texts, before they are read.

    Raises:
        InvalidError: too few labels, too many examples, or too much text.
    """
    others = any(len(one.labels) != 1 for one in labelled)
    several = stored.multi_label if stored else others if multi_label is None else multi_label
    if others and not several:
        raise InvalidError(
            "labels: a document has several labels or none, but this classifier gives each "
            "document one: POST /classifiers/{name}/labels changes them",
            "labels",
        )
    aliases = await indexes.aliases.all()
    found = {digest(one.text): one for one in await _kept(indexes, stored, aliases)}
    latest: dict[bytes, float] = {}
    left = sources.MOST_CHARACTERS
    model = None if stored is None else indexes.served.named(stored.model)
    of: dict[str, dict[str, Labelled]] = defaultdict(dict)
    for label in labelled:
        of[aliases.get(label.index, label.index)][label.id] = label
    for name, own in sorted(of.items()):
        try:
            index = await indexes.open(name)
        except NotFoundError:
            continue
        ids, texts, vectors = await sources.existing(index, [*own], left, reserve)
        if not ids:
            continue
        model = model or indexes.served.by_revision(index.identity.revision)
        fitting = index.identity.revision == model.revision
        left -= sum(map(len, texts))
        for one, text, vector in zip(ids, texts, vectors, strict=True):
            key = digest(text)
            if own[one].given >= latest.get(key, 0.0):
                latest[key] = own[one].given
                # documents of indexes come last
                former = found.pop(key, None)
                before = None if former is None else former.own
                known = vector if fitting else None
                found[key] = _Example(text, own[one].labels, own[one].index, known, before)
    examples = Examples(
        [one.text for one in found.values()], [one.labels for one in found.values()]
    )
    if len(found) > MOST_EXAMPLES:
        raise InvalidError(
            f"labels: there are {len(found)} examples and labelled documents, the limit is "
            f"{MOST_EXAMPLES}: remove labels, or PUT the classifier again with fewer examples",
            "labels",
        )
    try:
        check(examples.labels, several)
    except ValueError as error:
        raise InvalidError(str(error), "labels") from error
    if stored is not None:
        named = stored.model
    else:
        named = model.name if model is not None and len(indexes.served.models) > 1 else None
    examples = replace(
        examples,
        multi_label=several,
        unlabelled=stored.unlabelled if stored else None,
        model=named,
        labelled_in=[one.index for one in found.values() if one.index is not None],
        replaced=[one.replaced for one in found.values() if one.index is not None],
    )
    return examples, [one.vector for one in found.values()]


async def _kept(
    indexes: Indexes, stored: Examples | None, aliases: Mapping[str, str]
) -> list[_Example]:
    """The stored examples that count without labels of now, those from an index last."""
    if stored is None:
        return []
    gone = set()
    for name in set(stored.labelled_in):
        try:
            await indexes.open(aliases.get(name, name))
        except NotFoundError:
            gone.add(name)
    own = len(stored.inputs) - len(stored.labelled_in)
    kept = [_Example(stored.inputs[at], stored.labels[at], None) for at in range(own)]
    given: list[_Example] = []
    rest = zip(
        stored.inputs[own:], stored.labels[own:], stored.labelled_in, stored.replaced, strict=True
    )
    for text, labels, name, replaced in rest:
        if name in gone:
            given.append(_Example(text, labels, name, replaced=replaced))
        elif replaced is not None:
            kept.append(_Example(text, replaced, None))
    return kept + given
