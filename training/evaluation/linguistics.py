"""Parts of speech from spaCy."""

import importlib.util
from typing import Any

from training.errors import SettingsError

DEFAULT_MODEL = "en_core_web_sm"
HANTA = "hanta"


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
        from training.evaluation.hanta_tagger import hanta_pipeline

        return hanta_pipeline()
    import spacy

    try:
        return spacy.load(model, exclude=["ner"])
    except OSError:
        raise SettingsError(
            f"--spacy-model {model}: no such pipeline; run python -m spacy "
            f"download {DEFAULT_MODEL}, name a folder, or use {HANTA}, which needs no download"
        ) from None
