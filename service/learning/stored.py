"""The heads and trainings of a process, in tables that all replicas share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from docsplit.bundles.format import Bundle
from service.errors import InvalidError, NotFoundError
from service.index.store import Store

if TYPE_CHECKING:
    from docsplit.heads.examples import Examples
    from docsplit.heads.network import Vectors
    from service.learning.jobs import Jobs
    from service.learning.labels import Labels
    from service.learning.store import Heads


class HeadStore:
    """Classifiers, citation heads and their trainings below the path of a store.

    Args:
        store: of the indexes; a citation head is deleted with its index.
        bundles: may contain heads; of two classifiers of one name, that of the first bundle counts.
    """

    def __init__(self, store: Store, bundles: Sequence[Bundle]) -> None:
        self.indexes = store
        self._bundles = bundles
        self._heads: dict[str, Heads] = {}
        self._jobs: Jobs | None = None
        self._labels: Labels | None = None
        store.on_drop = self._forget

    async def classifiers(self) -> Heads:
        """The classifiers of all replicas."""
        return await self._of_kind("classifiers", "classifier")

    async def citation_heads(self) -> Heads:
        """The citation heads of all indexes, under the ``uid`` of each."""
        return await self._of_kind("citation", "citation head")

    async def jobs(self) -> Jobs:
        """Trainings of classifiers in the background, at all replicas."""
        database = await self.indexes.database("heads")
        from service.learning.jobs import Jobs

        if self._jobs is None:
            self._jobs = Jobs(database)
        return self._jobs

    async def labels(self) -> Labels:
        """The labels that people gave for the classifiers, at all replicas."""
        database = await self.indexes.database("heads")
        from service.learning.labels import Labels

        if self._labels is None:
            self._labels = Labels(database)
        return self._labels

    async def unlabelled(self, examples: Examples, revision: str) -> Vectors | None:
        """Vectors of the unlabelled documents for some examples; None if they name no index.

        Args:
            revision: of the bundle whose vectors the head reads.

        Raises:
            NotFoundError, InvalidError: the index is gone, is empty or has another bundle.
        """
        if examples.unlabelled is None:
            return None
        index = await (await self.indexes.indexes()).open(examples.unlabelled)
        if index.identity.revision != revision:
            raise InvalidError(
                "unlabelled: the index has the vectors of another bundle than the classifier: name "
                "the index's bundle as model, or use another index",
                "unlabelled",
            )
        from service.learning import sources

        return await sources.unlabelled(index)

    async def _of_kind(self, table: str, kind: str) -> Heads:
        database = await self.indexes.database("heads")
        from service.learning.bundled import HeadKind, bundled
        from service.learning.store import Heads

        if table not in self._heads:
            wanted: HeadKind = "citation" if table == "citation" else "classifier"
            brought = [head for one in self._bundles for head in bundled(one, wanted)]
            self._heads[table] = Heads(database, table, kind, brought)
        return self._heads[table]

    async def _forget(self, uid: str) -> None:
        with suppress(NotFoundError):
            await (await self.citation_heads()).delete(uid)
