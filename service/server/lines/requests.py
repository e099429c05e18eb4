"""From a request to its answer by lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from fastapi import Request

from service.embedding.prompts import resolve
from service.errors import EmptyError
from service.server.edge import deadline
from service.server.edge.bodies import ROOM
from service.server.lifecycle import Phase
from service.server.lines.embedding import Lines
from service.server.lines.options import NAMES, LineOptions
from service.server.lines.parsing import text_of
from service.server.lines.reading import BodyLines, Line, batched
from service.server.lines.stream import LineAnswers
from service.server.routes import inference


def lines_of_body(request: Request, options: LineOptions) -> LineAnswers:
    """Embed the lines of a body while they arrive.

    Raises:
        NotLoadedError: not ready.
        NotFoundError: no bundle has that name.
        InvalidError: the model has no such prompt, or fewer dimensions.
    """
    lines = _lines(request, options)
    service = lines.service
    body = BodyLines(
        request.receive,
        partial(text_of, options=NAMES),
        request.scope[ROOM],
        service.settings.max_body_bytes,
        service.settings.body_timeout,
        lambda: service.phase in (Phase.DRAINING, Phase.FAILED),
    )
    return LineAnswers(lines, body.batches(), body.progress)


def lines_of_texts(request: Request, texts: Sequence[str], options: LineOptions) -> LineAnswers:
    """Embed the texts of a JSON body, and answer each when its vector is ready.

    Raises:
        NotLoadedError, EmptyError, TooLargeError: as without lines.
    """
    lines = _lines(request, options)
    if not texts:
        raise EmptyError("no input: the list is empty", "input", code="empty_input")
    inference.check_count(lines.service, len(texts))

    async def found() -> AsyncIterator[Line]:
        for index, text in enumerate(texts):
            yield Line(index, text)

    return LineAnswers(lines, batched(found()), most_held=0)


def _lines(request: Request, options: LineOptions) -> Lines:
    service = inference.service_of(request)
    inference.check_ready(service)
    encoder = inference.encoder_of(request, options.model)
    inference.check_dimensions(encoder, options.dimensions)
    resolve(encoder.manifest, options.prompt_name)
    seconds = deadline.of(request) - request.scope["docsplit.started"]
    return Lines(service, encoder, options, seconds)
