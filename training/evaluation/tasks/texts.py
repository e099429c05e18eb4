"""Tasks on texts without labels, on judged queries, and on parts of speech, which need spaCy."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from export.tasks import rank
from training.derived import split
from training.errors import SettingsError
from training.evaluation.encoders import Features, Representation, text_digest
from training.evaluation.metrics import (
    alignment,
    mean_cosine,
    partition_isotropy,
    row_cosines,
    two_fold,
    uniformity,
)
from training.evaluation.tasks.task import (
    DEFAULT_MODEL,
    Figure,
    Measured,
    Options,
    Series,
    Task,
    UnfitError,
    over_draws,
    sampled,
)
from training.tokens import split_sentences
from training.trainer.validation import two_spans

# Retrieval of the documents that answer a query.


class Retrieval(Task):
    """A corpus ranked by cosine for each query."""

    name = "retrieval"
    title = "Retrieval"
    source = "LA(SER)³, section 4 (Tables 1 and 2; BEIR, nDCG@10)"
    differences = (
        "Queries and judgements are BEIR's test part. Title and text form one document. The paper "
        "cuts at 256 tokens. A query that is a document of the corpus does not find itself. An "
        "encoder puts its default prompt before queries and documents."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "ndcg_10": "nDCG@10",
        "recall_10": "recall@10",
        "mrr": "MRR",
    }
    kinds = (Judged,)
    version = 2
    main = "ndcg_10"

    def run(self, representation: Representation, data: Judged, options: Options) -> Measured:
        """nDCG at 10, recall at 10 and MRR over the queries."""
        own = representation.fitted(data.documents)
        documents = own.features(data.documents, options.reading)
        product = own.features(data.queries, options.reading) @ documents.T
        scores = product if isinstance(product, np.ndarray) else product.toarray()
        found = rank(data.without_themselves(scores), data.relevant)
        outcomes = {
            "ndcg_10": found.ndcg,
            "recall_10": found.recall,
            "mrr": found.reciprocal_rank,
        }
        return Measured(
            figures={name: Figure(value=float(v.mean())) for name, v in outcomes.items()},
            counts={"documents": len(data.documents), "queries": len(data.queries)},
            items=self.items(data, options, data.queries, outcomes),
        )


CHARACTERS = 300
_TEXTS = 40
_QUESTIONS = {
    "unrelated": ("what is NLP?", "what is computer vision?"),
    "related": ("what is natural language processing?", "what is computational linguistics?"),
}


class Elongation(Task):
    """Texts of 300 characters against themselves repeated m times."""

    name = "elongation"
    title = "Elongation attack"
    source = "LA(SER)³, section 2, proof of concept experiments 1 and 2 (Figures 1, 2 and 4)"
    differences = (
        "The texts are the paper's two pairs of questions and, instead of STS-b, the first 300 "
        "characters of up to 40 documents of the set. Related pairs are the first 300 and the "
        "next 300 characters of one document. Unrelated pairs are the first 300 of two. Drift is "
        "the mean change of a pair's cosine when both are repeated. The mean cosine of the "
        "unrelated pairs is the anisotropy of Figure 4. The paper's 0.06 and 0.42 belong to a "
        "MiniLM that was tuned on short questions and reads a text at once. Here an encoder reads "
        "a repeated text by windows, like any other."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "self": "cosine to itself, most copies",
        "self_lowest": "lowest",
        "drift_unrelated": "drift, unrelated",
        "drift_related": "drift, related",
        "questions_before": "unrelated questions, once",
        "questions_after": "repeated",
        "farthest": "farthest on the way",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "copies", "reading")
    version = 2
    main = "self"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Cosines before and after, for each number of copies."""
        long = [text for text in data.documents if len(text) >= 2 * CHARACTERS]
        if len(long) < 3:
            raise UnfitError(f"{data.name}: fewer than three documents of {2 * CHARACTERS} letters")
        texts = [long[i] for i in sampled(len(long), _TEXTS, options.seed)]
        heads = [text[:CHARACTERS] for text in texts]
        nexts = [text[CHARACTERS : 2 * CHARACTERS] for text in texts]
        own = representation.fitted(data.documents)
        copies = (1, *options.copies)
        found = {m: _Cosines(own, heads, nexts, m, options) for m in copies}
        once, most = found[1], found[copies[-1]]
        itself = {m: row_cosines(once.first, f.first) for m, f in found.items()}
        questions = [f.questions["unrelated"] for f in found.values()]
        figures = {
            "self": over_draws(itself[copies[-1]].tolist()),
            "self_lowest": Figure(value=float(itself[copies[-1]].min())),
            "drift_unrelated": over_draws((most.unrelated - once.unrelated).tolist()),
            "drift_related": over_draws((most.related - once.related).tolist()),
            "anisotropy_before": Figure(value=float(once.unrelated.mean())),
            "anisotropy_after": Figure(value=float(most.unrelated.mean())),
            "questions_before": Figure(value=questions[0]),
            "questions_after": Figure(value=questions[-1]),
            "farthest": Figure(value=max(questions, key=lambda value: abs(value - questions[0]))),
        }
        x = [float(m) for m in copies]
        series = {
            "itself": Series(x=x, y=[float(itself[m].mean()) for m in copies]),
            "itself, lowest": Series(x=x, y=[float(itself[m].min()) for m in copies]),
            "unrelated": Series(x=x, y=[float(f.unrelated.mean()) for f in found.values()]),
            "related": Series(x=x, y=[float(f.related.mean()) for f in found.values()]),
            "questions, unrelated": Series(x=x, y=questions),
            "questions, related": Series(x=x, y=[f.questions["related"] for f in found.values()]),
        }
        samples = {
            "unrelated, once": once.unrelated.tolist(),
            "unrelated, repeated": most.unrelated.tolist(),
            "related, once": once.related.tolist(),
            "related, repeated": most.related.tolist(),
        }
        counts = {"texts": len(texts), "unrelated pairs": len(once.unrelated), "copies": copies[-1]}
        return Measured(
            figures=figures,
            series=series,
            samples=samples,
            counts=counts,
            items=self.items(data, options, texts, {"self": itself[copies[-1]]}),
        )


class _Cosines:
    """Cosines of all pairs for one number of copies.

    Attributes:
        first: features of the first pieces.
        related: cosines of the two pieces of each document, ``[texts]``.
        unrelated: cosines of the first pieces of every two documents, ``[pairs]``.
        questions: cosines of the paper's two pairs.
    """

    def __init__(
        self,
        own: Representation,
        heads: Sequence[str],
        nexts: Sequence[str],
        copies: int,
        options: Options,
    ) -> None:
        asked = [question for pair in _QUESTIONS.values() for question in pair]
        every = [repeated(text, copies) for text in (*heads, *nexts, *asked)]
        rows: Features = own.features(every, options.reading)
        n = len(heads)
        self.first = rows[:n]
        self.related = row_cosines(rows[:n], rows[n : 2 * n])
        one, two = np.triu_indices(n, 1)
        self.unrelated: npt.NDArray[np.float64] = row_cosines(rows[one], rows[two])
        between = row_cosines(rows[2 * n :: 2], rows[2 * n + 1 :: 2])
        self.questions = dict(zip(_QUESTIONS, between.tolist(), strict=True))


def repeated(text: str, copies: int) -> str:
    """A text copied and concatenated (LA(SER)³, eq. 1), with a space between the copies."""
    return " ".join([text] * copies)


SPAN_WORDS = 48
_LEAST_WORDS = 16


class SameDocument(Task):
    """Pairs of spans that do not overlap, from one document or from two."""

    name = "same-document"
    title = "Same-document discrimination"
    source = "Contrastive unsupervised text representations, section 5"
    differences = (
        "Spans have 48 words (about 64 tokens), fewer in short documents. The report's spans have "
        "64 tokens and come from Wikipedia. Each document gives one pair of its own spans and one "
        "with another document of the sample. A threshold on the cosine decides, fitted on one "
        "half of the documents and measured on the other, both ways. The report does not say how "
        "it decides."
    )
    columns: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "auc": "area under ROC"}
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample")
    version = 2
    main = "accuracy"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Accuracy and area under the ROC curve."""
        first, second = span_pairs(data.documents, options.sample, options.seed)
        own = representation.fitted(data.documents)
        one, two = own.features(first), own.features(second)
        same, other = row_cosines(one, two), row_cosines(one, _rolled(two))
        truth = np.repeat([1, 0], len(same))
        area = roc_auc_score(truth, np.concatenate([same, other]))
        right = two_fold(same, other)
        pairs = [*zip(first, second, strict=True)]
        pairs += zip(first, second[1:] + second[:1], strict=True)
        return Measured(
            figures={
                "accuracy": Figure(value=float(right.mean())),
                "auc": Figure(value=float(area)),
            },
            samples={"same document": same.tolist(), "other document": other.tolist()},
            counts={"documents": len(first)},
            items=self.items(data, options, list(map("\n".join, pairs)), {"accuracy": right}),
        )


def span_pairs(documents: Sequence[str], most: int, seed: int) -> tuple[list[str], list[str]]:
    """Two spans of each of ``most`` documents that are long enough.

    Raises:
        UnfitError: fewer than four documents are long enough.
    """
    longest = [i for i, text in enumerate(documents) if len(text.split()) >= 2 * _LEAST_WORDS]
    if len(longest) < 4:
        raise UnfitError(f"fewer than four documents have {2 * _LEAST_WORDS} words")
    first: list[str] = []
    second: list[str] = []
    for place in sampled(len(longest), most, seed):
        words = documents[longest[place]].split()
        draw = np.random.default_rng([seed, int(place)])
        for span, kept in zip(
            two_spans(np.arange(len(words)), SPAN_WORDS, draw), (first, second), strict=True
        ):
            kept.append(" ".join(words[i] for i in span))
    return first, second


def _rolled(rows: Features) -> Features:
    return rows[np.roll(np.arange(rows.shape[0]), -1)]


class Halves(Task):
    """The second halves of all documents, ranked for each first half."""

    name = "halves"
    title = "Halves of documents"
    source = "DocSplit, section 2.2 (the positive pairs of its training)"
    differences = (
        "No paper has a figure to compare with. A coin decides for each sentence to which half it "
        "belongs; the digest of the document and --seed throw it. The second halves of all "
        "documents of the sample are candidates, ranked by cosine. Copies of a document and "
        "documents of one sentence are left out. Accuracy: the document's own half is the first."
    )
    version = 2
    columns: ClassVar[Mapping[str, str]] = {"mrr": "MRR", "accuracy": "accuracy"}
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "reading")
    main = "mrr"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """MRR and accuracy over the sampled documents."""
        texts = _drawn(data.documents, options)
        pairs = [
            split(text, int.from_bytes(text_digest(f"{options.seed}:{text}")[:8])) for text in texts
        ]
        own = representation.fitted(data.documents)
        first, second = (own.features(half, options.reading) for half in zip(*pairs, strict=True))
        product = first @ second.T
        found = rank(
            product if isinstance(product, np.ndarray) else product.toarray(),
            [{number: 1.0} for number in range(len(texts))],
        )
        outcomes = {
            "mrr": found.reciprocal_rank,
            "accuracy": np.asarray(found.reciprocal_rank == 1, dtype=np.float64),
        }
        return Measured(
            figures={name: Figure(value=float(v.mean())) for name, v in outcomes.items()},
            counts={"documents": len(texts)},
            items=self.items(data, options, texts, outcomes),
        )


def _drawn(documents: Sequence[str], options: Options) -> list[str]:
    """The sampled documents of two sentences or more, without copies."""
    different = list(dict.fromkeys(documents))
    found: list[str] = []
    for place in sampled(len(different), len(different), options.seed):
        if len(split_sentences(different[place])) >= 2:
            found.append(different[place])
        if len(found) == options.sample:
            break
    if len(found) < 2:
        raise UnfitError("fewer than two different documents have two sentences")
    return found


_SENTENCES = 20
_SENTENCE_WORDS = 4


class Geometry(Task):
    """Isotropy, alignment and uniformity, and similarities within and between documents."""

    name = "geometry"
    title = "Geometry"
    source = (
        "LA(SER)³, section 2 (isotropy, intra-document similarity; Figures 3 and 4); DocSplit, "
        "appendix A.2 (Table 5: sentence similarity); Wang & Isola 2020 (alignment, uniformity)"
    )
    differences = (
        "The task reads a sample of --sample documents. Anisotropy: mean cosine of all pairs of "
        "documents (0 is isotropic). Isotropy: by the partition function of Mu & Viswanath 2018 "
        "(1 is isotropic). Intra-document similarity: cosine of sentences to their document's "
        "vector, minus that to another document's; the paper uses tokens, which an encoder does "
        "not show. Alignment: of two spans of 48 words of a document. Sentence similarity: of up "
        "to 20 sentences spread over each document, by the encoder itself; the paper's Table 5 "
        "uses SimCSE."
    )
    version = 2
    columns: ClassVar[Mapping[str, str]] = {
        "anisotropy": "anisotropy",
        "isotropy": "isotropy",
        "intra": "intra-document",
        "alignment": "alignment",
        "uniformity": "uniformity",
        "inner": "sentences, inner",
        "inter": "sentences, inter",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "reading")

    def suits(self, representation: Representation) -> bool:
        """Only dense vectors: the space of words differs between sets."""
        return not representation.sparse

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """All measures on one sample."""
        cut = [_sentences(text) for text in data.documents]
        long = [i for i, sentences in enumerate(cut) if len(sentences) >= 2]
        if len(long) < 4:
            raise UnfitError(f"{data.name}: fewer than four documents have two sentences")
        chosen = [long[i] for i in sampled(len(long), options.sample, options.seed)]
        documents = representation.features([data.documents[i] for i in chosen], options.reading)
        sentences = representation.features([s for i in chosen for s in cut[i]])
        owner = np.repeat(np.arange(len(chosen)), [len(cut[i]) for i in chosen])
        inner, inter = similarities(sentences, owner)
        to_all = sentences @ documents.T
        own = to_all[np.arange(len(owner)), owner]
        other = to_all[np.arange(len(owner)), (owner + 1) % len(chosen)]
        first, second = span_pairs(data.documents, options.sample, options.seed)
        aligned = alignment(representation.features(first), representation.features(second))
        found = {
            "anisotropy": mean_cosine(documents),
            "isotropy": partition_isotropy(documents),
            "intra": float(own.mean() - other.mean()),
            "alignment": aligned,
            "uniformity": uniformity(documents),
            "inner": inner,
            "inter": inter,
        }
        return Measured(
            figures={name: Figure(value=value) for name, value in found.items()},
            counts={"documents": len(chosen), "sentences": len(owner)},
        )


def similarities(
    sentences: npt.NDArray[np.float32], owner: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """Mean cosine of pairs of sentences from one document, and from two documents.

    Args:
        sentences: unit vectors ``[sentences, dimensions]``.
        owner: the document of each, ``[sentences]``.
    """
    cosines = sentences @ sentences.T
    one, two = np.triu_indices(len(owner), 1)
    pairs = cosines[one, two].astype(np.float64)
    same = owner[one] == owner[two]
    return float(pairs[same].mean()), float(pairs[~same].mean())


def _sentences(text: str) -> Sequence[str]:
    found = [s for s in split_sentences(text) if len(s.split()) >= _SENTENCE_WORDS]
    if not found:
        return []
    places = np.linspace(0, len(found) - 1, min(len(found), _SENTENCES)).round().astype(int)
    return [found[i] for i in places]


HANTA = "hanta"


# Beginnings of the corpus's C5 tags. C5 does not distinguish auxiliaries from full verbs
# for the forms of "be", "do" and "have".
_UNIVERSAL = {
    "NP": "PROPN",
    "NN": "NOUN",
    "VV": "VERB",
    "VB": "AUX",
    "VD": "AUX",
    "VH": "AUX",
    "VM": "AUX",
    "AJ": "ADJ",
    "AV": "ADV",
}


def open_tagger(model: str) -> Any:
    """A spaCy pipeline that tags parts of speech and gives lemmas.

    Args:
        model: an installed pipeline's name, or a folder; ``hanta`` needs no download.

    Raises:
        SettingsError: spaCy, HanTa or the pipeline is not installed. The message says how to
            install it.
    """
    needed = ("spacy", "HanTa") if model == HANTA else ("spacy",)
    if any(importlib.util.find_spec(package) is None for package in needed):
        raise SettingsError(
            "parts of speech need spaCy: run pip install 'docsplit[linguistics]', then "
            f"python -m spacy download {DEFAULT_MODEL} or --spacy-model {HANTA}"
        )
    if model == HANTA:
        return _hanta_pipeline()
    import spacy

    try:
        return spacy.load(model, exclude=["ner"])
    except OSError:
        raise SettingsError(
            f"--spacy-model {model}: no such pipeline; run python -m spacy "
            f"download {DEFAULT_MODEL}, name a folder, or use {HANTA}, which needs no download"
        ) from None


_CONTENT = ("NOUN", "PROPN", "VERB")
_EDGES = (50, 100, 200, 300)
_COLUMNS = ("words_50", "words_100", "words_200", "words_300", "words_more")


def _hanta_pipeline() -> Any:
    """spaCy's English tokeniser and sentences, with HanTa's tags and lemmas.

    HanTa's package contains its model (Wartena 2019, "A Probabilistic Morphology Model for German
    Lemmatization"); the English one is trained on the British National Corpus.
    """
    import spacy
    from HanTa.HanoverTagger import HanoverTagger
    from spacy.language import Language

    hanta = HanoverTagger("morphmodel_en.pgz")

    @Language.component("hanta")
    def tag(document: Any) -> Any:
        for sentence in document.sents:
            words = [token for token in sentence if not token.is_space]
            tagged = hanta.tag_sent([word.text for word in words])
            for word, (_, lemma, found) in zip(words, tagged, strict=True):
                word.tag_, word.lemma_ = found, lemma
                word.pos_ = _UNIVERSAL.get(found[:2], "X")
        return document

    made = spacy.blank("en")
    made.add_pipe("sentencizer")
    made.add_pipe("hanta")
    return made


class Redundancy(Task):
    """Nouns and verbs over distinct nouns and verbs, by length; a property of the texts."""

    name = "redundancy"
    title = "Redundancy"
    source = "SimLTE, appendix A (Table 3); DocSplit, appendix A.2 (equation 2, Table 4)"
    differences = (
        "The task reads a sample of --sample documents. It distinguishes lemmas by their part of "
        "speech and counts proper nouns as nouns; the papers do not specify either. Each bucket "
        "shows the mean over its documents. The task needs spaCy and a pipeline (--spacy-model) "
        "and runs only if --tasks names it."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "words_50": "0-50 words",
        "words_100": "51-100",
        "words_200": "101-200",
        "words_300": "201-300",
        "words_more": "> 300",
        "all": "all",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "spacy_model")
    of_texts = True
    asked_for = True

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Mean redundancy by bucket."""
        del representation
        tagger = open_tagger(options.spacy_model)
        chosen = sampled(len(data.documents), options.sample, options.seed)
        texts = [data.documents[i] for i in chosen]
        found = [redundancy([(t.pos_, t.lemma_) for t in doc]) for doc in tagger.pipe(texts)]
        words = np.asarray([len(text.split()) for text in texts])
        there = np.asarray([value is not None for value in found])
        if not there.any():
            raise UnfitError(f"{data.name}: no nouns or verbs; does the pipeline tag them?")
        values = np.asarray([value or 0.0 for value in found])
        bucket = np.searchsorted(_EDGES, words, side="left")
        figures, series, counts = {}, [], {}
        for number, name in enumerate(_COLUMNS):
            own = there & (bucket == number)
            counts[f"documents of {self.columns[name]}"] = int(own.sum())
            if own.any():
                figures[name] = Figure(value=float(values[own].mean()))
                series.append((self.columns[name], figures[name].value))
        figures["all"] = Figure(value=float(values[there].mean()))
        curve = Series(x=[name for name, _ in series], y=[value for _, value in series])
        return Measured(figures=figures, series={"redundancy": curve}, counts=counts)


def redundancy(tagged: list[tuple[str, str]]) -> float | None:
    """Nouns and verbs over distinct ones (DocSplit, equation 2).

    Args:
        tagged: part of speech and lemma of each word.

    Returns:
        At least 1; None if there are no nouns or verbs.
    """
    content = [
        ("VERB" if pos == "VERB" else "NOUN", lemma) for pos, lemma in tagged if pos in _CONTENT
    ]
    return len(content) / len(set(content)) if content else None


_KINDS = {"NOUN": "nouns", "PROPN": "nouns", "VERB": "verbs", "ADJ": "adjectives"}


class Attention(Task):
    """Mean attention of the first token to nouns, verbs, adjectives and other words."""

    name = "attention"
    title = "Attention by part of speech"
    source = "SimLTE, section 3.6 and appendix C (Figure 3)"
    differences = (
        "The weights are those of [CLS] in the last layer, averaged over the heads. A word's "
        "weight is the sum over its tokens, divided by the mean over the words of its document. "
        "So 1 is no preference, and documents of any length count equally. The paper shows plain "
        "means, on NYT, in a figure without numbers. The task reads the first windows of --sample "
        "documents. An encoder that pools by the mean does not read its vector from [CLS]. The "
        "task needs spaCy and the weights, which neither bundles nor services give."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "nouns": "nouns",
        "verbs": "verbs",
        "adjectives": "adjectives",
        "other": "other words",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "spacy_model")
    asked_for = True

    def suits(self, representation: Representation) -> bool:
        """Only encoders that give their attention weights."""
        return hasattr(getattr(representation, "encoder", None), "first_token_attention")

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Mean relative weight of each kind of word."""
        encoder = cast(Any, representation).encoder
        tagger = open_tagger(options.spacy_model)
        chosen = sampled(len(data.documents), options.sample, options.seed)
        found: dict[str, list[float]] = {name: [] for name in self.columns}
        for document in tagger.pipe([data.documents[i] for i in chosen]):
            offsets, weights = encoder.first_token_attention(document.text)
            words = [(t.idx, t.idx + len(t), t.pos_) for t in document if t.is_alpha]
            for kind, weight in by_word(words, offsets, weights):
                found[kind].append(weight)
        if not any(found[kind] for kind in ("nouns", "verbs", "adjectives")):
            raise UnfitError(f"{data.name}: no nouns or verbs; does the pipeline tag them?")
        return Measured(
            figures={k: Figure(value=float(np.mean(v))) for k, v in found.items() if v},
            counts={"documents": len(chosen), **{k: len(v) for k, v in found.items()}},
        )


def by_word(
    words: Sequence[tuple[int, int, str]],
    offsets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
) -> list[tuple[str, float]]:
    """Kind and weight of each word that the tokens reach, relative to their mean.

    Args:
        words: first character, one past the last, and part of speech.
        offsets: characters of each token, ``[tokens, 2]``.
        weights: of each token, ``[tokens]``.
    """
    reached = int(offsets[-1, 1]) if len(offsets) else 0
    found = []
    for begin, end, part in words:
        if end <= reached:
            inside = (offsets[:, 0] >= begin) & (offsets[:, 1] <= end)
            found.append((_KINDS.get(part, "other"), float(weights[inside].sum())))
    mean = np.mean([weight for _, weight in found]) if found else 1.0
    return [(kind, weight / float(mean)) for kind, weight in found]
