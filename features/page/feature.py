"""Registers the pages for browsers."""

from starlette.types import ASGIApp

from features.page.pages import Pages
from service.features import Feature


class Page(Feature):
    """Serves the page at / and Swagger UI at /docs."""

    name = "page"

    def outer(self, app: ASGIApp) -> ASGIApp:
        """Answer requests for files of the pages."""
        return Pages(app, self.service.settings.ui)


FEATURE = Page
