"""The service, as if its bundle had embedded an index that is of another one.

    BUNDLE=name REVISION=digest python -m benchmarks.rig.stored_bundle --index-path=FOLDER

Only searches for stored documents make sense, because they embed nothing.
"""

import os
import sys

from service import __main__ as service
from service.index import indexes
from service.index.generations import Model


class _Stored(Model):
    def __init__(self, name: str, revision: str, dimensions: int) -> None:
        super().__init__(os.environ["BUNDLE"], os.environ["REVISION"], dimensions)


if __name__ == "__main__":
    setattr(indexes, "Model", _Stored)  # noqa: B010 the store makes its models by this name
    sys.exit(service.main())
