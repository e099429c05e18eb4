"""Parts of speech, by spaCy."""

from __future__ import annotations

import importlib.util
from typing import Any

from training.errors import SettingsError

DEFAULT_MODEL = "en_core_web_sm"


def open_tagger(model: str) -> Any:
    """A spaCy pipeline that tags parts of speech and gives lemmas.

    Args:
        model: an installed pipeline's name, or a folder.

    Raises:
        SettingsError: spaCy or the pipeline is not installed; says how to mend it.
    """
    if importlib.util.find_spec("spacy") is None:
        raise SettingsError(
            "parts of speech need spaCy: pip install 'docsplit[linguistics]', then "
            f"python -m spacy download {DEFAULT_MODEL}"
        )
    import spacy

    try:
        return spacy.load(model, exclude=["ner"])
    except OSError:
        raise SettingsError(
            f"--spacy-model {model}: no such pipeline; python -m spacy download {DEFAULT_MODEL}, "
            "or name the folder of one"
        ) from None
