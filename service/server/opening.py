"""Open the bundles that the settings name."""

from typing import NamedTuple

from bundles.format import Bundle, RerankerBundle, load, load_reranker
from bundles.manifest import BundleError
from service.settings import Settings


class Bundles(NamedTuple):
    """The bundles of a service."""

    encoder: Bundle
    reranker: RerankerBundle | None

    @property
    def revisions(self) -> tuple[str, ...]:
        """Their revisions."""
        found = (self.encoder, self.reranker)
        return tuple(bundle.manifest.revision for bundle in found if bundle is not None)


def open_bundles(settings: Settings, *, revisions: tuple[str, ...] | None = None) -> Bundles:
    """Open the bundles.

    Args:
        settings: name their folders.
        revisions: of bundles that another process has verified; without them, every file is
            compared with its digest.

    Raises:
        BundleError: a bundle is unusable, or it changed after it was verified.
    """
    verify = revisions is None
    encoder = load(settings.bundle, verify=verify)
    reranker = None
    if settings.reranker is not None:
        reranker = load_reranker(settings.reranker, verify=verify)
    found = Bundles(encoder, reranker)
    if revisions is not None and found.revisions != revisions:
        folders = [str(settings.bundle), *([str(settings.reranker)] if settings.reranker else [])]
        raise BundleError(f"{' or '.join(folders)}: changed after the service started")
    return found
