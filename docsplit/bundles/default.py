"""The path of the bundle that the service uses by default."""

from pathlib import Path

DEFAULT_BUNDLE = Path(__file__).resolve().parent.parent / "models" / "docsplit-minilm-l6-v3"
