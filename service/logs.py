"""Structured logs: one JSON object per line, or text for people."""

import logging
import os
import sys
import traceback
from typing import Any, Literal

import structlog
from structlog.tracebacks import ExceptionDictTransformer


def configure(level: str, form: Literal["json", "text"]) -> None:
    """Write our own events and those of libraries to standard error in one form.

    Args:
        level: debug, info, warning or error.
        form: ``json`` for machines, ``text`` for people.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    final: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta
    ]
    if form == "json":
        final += [
            # never log local variables: they contain the callers' texts
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    else:
        # https://no-color.org: any value but the empty one
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        final += [
            _on_one_line,
            structlog.dev.ConsoleRenderer(
                colors=colours, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=[*shared, outlined], processors=final)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # the SDK logs every request, and messages that contain what callers sent
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # our access log replaces uvicorn's; it has ids and no query string
    logging.getLogger("uvicorn.access").disabled = True


def printable(line: str) -> str:
    """The line with escapes for what ends it, or what a terminal obeys."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def _on_one_line(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {key: printable(one) if isinstance(one, str) else one for key, one in event.items()}


def outline(error: BaseException) -> list[str]:
    """The origin of an unexpected exception: types and places, causes first.

    It leaves out messages: those of libraries may repeat texts, ids or paths of callers.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [] if cause is None else outline(cause)
    places = traceback.extract_tb(error.__traceback__)
    where = [f"{place.filename}:{place.lineno} {place.name}" for place in places]
    return [*before, type(error).__qualname__, *where]


def outlined(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Remove the messages of exceptions from the logs of libraries; a structlog processor."""
    info = event.pop("exc_info", None)
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["outline"] = outline(error)
    # asyncio's message ends with the repr of a task and its exception
    event["event"] = str(event["event"]).split("\n", 1)[0]
    return event
