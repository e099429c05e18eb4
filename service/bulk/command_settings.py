"""The settings of ``docsplit-index``, and its logs."""

from service import logs
from service.configuration import load
from service.settings import Settings


def load_settings(arguments: list[str]) -> Settings:
    """Read the settings and configure the logs; raises like ``service.configuration.load``.

    Logs go to standard error, next to the progress. Unless the settings say otherwise, they are
    warnings and errors as text.
    """
    settings = load(arguments, "docsplit-index")
    given = settings.model_fields_set
    level = settings.log_level if "log_level" in given else "warning"
    logs.configure(level, settings.log_format if "log_format" in given else "text")
    return settings
