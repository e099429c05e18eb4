"""Open the bundles that the settings name."""

import re
from pathlib import Path
from typing import NamedTuple

from docsplit.bundles.format import Bundle, RerankerBundle, load, load_reranker
from docsplit.bundles.manifest import NAME, BundleError
from service.settings import Settings


class Bundles(NamedTuple):
    """The bundles of a service.

    Attributes:
        encoders: by the names that requests and indexes know them by; the default one first.
    """

    encoders: dict[str, Bundle]
    reranker: RerankerBundle | None = None

    @property
    def revisions(self) -> tuple[str, ...]:
        """Their revisions."""
        found = (*self.encoders.values(), self.reranker)
        return tuple(bundle.manifest.revision for bundle in found if bundle is not None)


def open_bundles(settings: Settings, *, revisions: tuple[str, ...] | None = None) -> Bundles:
    """Open the bundles.

    Args:
        settings: name their folders.
        revisions: of bundles that another process has verified; without them, every file is
            compared with its digest.

    Raises:
        BundleError: a bundle is unusable, it changed after it was verified, or two bundles have
            one name or one revision.
    """
    verify = revisions is None
    encoders: dict[str, Bundle] = {}
    for name, folder in map(_named, settings.bundle):
        bundle = load(folder, verify=verify)
        _add(encoders, name or bundle.manifest.name, bundle)
    reranker = None
    if settings.reranker is not None:
        reranker = load_reranker(settings.reranker, verify=verify)
    found = Bundles(encoders, reranker)
    if revisions is not None and found.revisions != revisions:
        folders = [*settings.bundle, *([str(settings.reranker)] if settings.reranker else [])]
        raise BundleError(f"{' or '.join(folders)}: changed after the service started")
    return found


def open_one(settings: Settings) -> Bundles:
    """Open the bundle of a command that works with one.

    Raises:
        BundleError: the settings name several, or it is unusable.
    """
    if len(settings.bundle) > 1:
        raise BundleError(
            "bundle (--bundle, DOCSPLIT_BUNDLE): this command works with one bundle: name only "
            "that of the index"
        )
    return open_bundles(settings.model_copy(update={"reranker": None}))


def _named(given: str) -> tuple[str | None, Path]:
    """The name and the folder of ``NAME=PATH``, or only the folder."""
    name, equals, folder = given.partition("=")
    if equals and re.fullmatch(NAME, name):
        return name, Path(folder)
    return None, Path(given)


def _add(encoders: dict[str, Bundle], name: str, bundle: Bundle) -> None:
    if name in encoders:
        raise BundleError(
            f"{bundle.root}: another bundle is served as {name!r}: name one of them with "
            "--bundle NAME=PATH"
        )
    for other, held in encoders.items():
        if held.manifest.revision == bundle.manifest.revision:
            raise BundleError(
                f"{bundle.root}: {other!r} is the same bundle: leave one of them out, or give "
                "further names of the first bundle as model_aliases"
            )
    encoders[name] = bundle
