"""The service, as if its bundle had embedded an index that is of another one.

Only searches for stored documents make sense, because they embed nothing.
"""

import os

from service import __main__ as service
from service.index import indexes
from service.index.indexes import Model


class _Stored(Model):
    def __init__(self, name: str, revision: str, dimensions: int) -> None:
        super().__init__(os.environ["BUNDLE"], os.environ["REVISION"], dimensions)


def main(arguments: list[str]) -> int:
    """Start the service with these flags; the variables BUNDLE and REVISION name the bundle."""
    setattr(indexes, "Model", _Stored)  # noqa: B010 the store makes its models by this name
    return service.main(arguments)
