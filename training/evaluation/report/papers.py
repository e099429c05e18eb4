"""Figures from the papers, by task and set; ``*`` matches every set."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reported:
    """Figures of one model in a paper.

    Attributes:
        model: name of the model and its paper.
        figures: fractions of 1, by the name of our column.
    """

    model: str
    figures: Mapping[str, float]


def reported(task: str, data: str) -> list[Reported]:
    """Figures to compare a result with."""
    return [*_FIGURES.get((task, data), []), *_FIGURES.get((task, "*"), [])]


def _classified(shots: str, *rows: tuple[str, float, float]) -> list[Reported]:
    return [
        Reported(
            f"{model} (DocSplit, Table 2)",
            {f"accuracy{shots}": a / 100, f"macro_f1{shots}": f / 100},
        )
        for model, a, f in rows
    ]


_BERT, _SIMCSE, _OURS, _LONG = "BERT", "SimCSE", "DocSplit, BERT", "DocSplit, Longformer"

_BUCKETS = ("words_50", "words_100", "words_200", "words_300", "words_more", "all")

_FIGURES: dict[tuple[str, str], list[Reported]] = {
    ("probe", "fakenews"): _classified(
        "",
        (_BERT, 54.98, 42.17),
        (_SIMCSE, 58.48, 47.46),
        (_OURS, 60.04, 50.14),
        (_LONG, 71.60, 61.66),
    ),
    ("probe", "news20"): _classified(
        "",
        (_BERT, 62.34, 54.19),
        (_SIMCSE, 74.02, 72.57),
        (_OURS, 76.89, 74.85),
        (_LONG, 75.44, 74.38),
    ),
    ("probe", "arxiv"): _classified(
        "",
        (_BERT, 68.52, 20.46),
        (_SIMCSE, 74.46, 30.01),
        (_OURS, 76.66, 32.24),
        (_LONG, 77.68, 33.26),
    ),
    ("probe", "bbc"): _classified(
        "",
        (_BERT, 91.06, 90.34),
        (_SIMCSE, 94.12, 93.86),
        (_OURS, 95.56, 95.58),
        (_LONG, 96.67, 95.91),
    ),
    ("few-shot", "fakenews"): _classified(
        "_10",
        (_BERT, 23.96, 23.73),
        (_SIMCSE, 25.04, 22.68),
        (_OURS, 27.79, 24.65),
        (_LONG, 29.17, 27.13),
    ),
    ("few-shot", "news20"): _classified(
        "_5",
        (_BERT, 19.94, 18.71),
        (_SIMCSE, 42.63, 41.42),
        (_OURS, 55.79, 55.43),
        (_LONG, 51.18, 50.96),
    ),
    ("few-shot", "arxiv"): _classified(
        "_10",
        (_BERT, 24.08, 10.14),
        (_SIMCSE, 32.61, 17.19),
        (_OURS, 35.79, 18.52),
        (_LONG, 34.33, 18.80),
    ),
    ("few-shot", "bbc"): _classified(
        "_5",
        (_BERT, 54.22, 52.73),
        (_SIMCSE, 83.56, 83.75),
        (_OURS, 86.86, 86.31),
        (_LONG, 86.78, 86.66),
    ),
    ("citation-links", "aan_scisumm"): [
        Reported(f"{model} (DocSplit, Table 3)", {"accuracy": value / 100})
        for model, value in (
            (_BERT, 53.56),
            (_SIMCSE, 54.78),
            (_OURS, 58.29),
            ("Longformer", 56.89),
            (_LONG, 59.89),
        )
    ],
    ("retrieval", "scifact"): [
        Reported(f"{model} (LA(SER)³, {where})", {"ndcg_10": value})
        for model, where, value in (
            ("SimCSE, BERT-base", "Table 1", 0.2492),
            ("LA(SER)³ self, BERT-base", "Table 1", 0.4317),
            ("SimCSE, MiniLM-L6", "Table 2", 0.2174),
            ("LA(SER)³ self, MiniLM-L6", "Table 2", 0.3525),
            ("COCO-DR, MiniLM-L6 on MS MARCO", "Table 2", 0.4056),
            ("LA(SER)³ intra, MiniLM-L6 on MS MARCO", "Table 2", 0.4076),
        )
    ],
    ("retrieval", "nfcorpus"): [
        Reported("LA(SER)³ self, BERT-base (LA(SER)³, Table 1)", {"ndcg_10": 0.1919}),
        Reported("LA(SER)³ self, MiniLM-L6 (LA(SER)³, Table 2)", {"ndcg_10": 0.1265}),
    ],
    ("retrieval", "arguana"): [
        Reported("LA(SER)³ self, BERT-base (LA(SER)³, Table 1)", {"ndcg_10": 0.4227}),
        Reported("LA(SER)³ self, MiniLM-L6 (LA(SER)³, Table 2)", {"ndcg_10": 0.3130}),
    ],
    ("elongation", "*"): [
        Reported(
            "MiniLM tuned on QQP, 100 copies (LA(SER)³, section 2)",
            {"questions_before": 0.06, "questions_after": 0.42},
        )
    ],
    **{
        ("geometry", data): [
            Reported("SimCSE (DocSplit, Table 5)", {"inner": inner, "inter": inter})
        ]
        for data, inner, inter in (
            ("fakenews", 0.28, 0.06),
            ("news20", 0.21, 0.07),
            ("arxiv", 0.51, 0.35),
            ("bbc", 0.32, 0.09),
        )
    },
    **{
        ("redundancy", data): [
            Reported("SimLTE, Table 3", dict(zip(_BUCKETS, figures, strict=True)))
        ]
        for data, figures in (
            ("news20", (1.12, 1.18, 1.24, 1.31, 1.50, 1.28)),
            ("arxiv", (1.12, 1.25, 1.36, 1.49, 1.62, 1.34)),
            ("bbc", (1.05, 1.14, 1.20, 1.29, 1.46, 1.19)),
        )
    },
    ("same-document", "*"): [
        Reported("Longformer, contrastive, on Wikipedia (section 5)", {"accuracy": 0.82})
    ],
}
