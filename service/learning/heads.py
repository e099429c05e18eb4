"""Heads: those of a LanceDB table that every replica sees, and those of the bundles."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import structlog
from cachetools import LRUCache

from docsplit.bundles.format import Bundle
from docsplit.engines.telemetry import block_telemetry
from docsplit.heads import network
from docsplit.heads.examples import Examples, digests, unpacked
from docsplit.heads.network import Floats, Kind, Network, Scorer
from docsplit.windowing.pooling import Vectors
from service import executors
from service.errors import ConflictError, NotFoundError, StoreError
from service.index import sql
from service.index.rows.keyed import KeyedTable, Row
from service.index.storage.database import Database
from service.logs import outline

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

log = structlog.get_logger("docsplit.index")

HeadKind = Literal["classifier", "citation"]

# limit of the heads of one kind that a process keeps in memory
_LOADED_BYTES = 64_000_000
# former trainings in a report
_MOST_HISTORY = 100
_KEPT = ("examples", "accuracy", "subset_accuracy", "macro_f1")
# memory for a label besides its column of the network: its name, and its part of the report
_LABEL_BYTES = 500


@dataclass(frozen=True, slots=True)
class Head:
    """A stored classifier.

    Attributes:
        uid: random for each training.
        revision: of the bundle whose vectors it was trained on.
        labels: the network's outputs in order.
        report: results of its training.
        bundled: whether it is part of the bundle.
    """

    name: str
    uid: str
    revision: str
    labels: list[str]
    report: dict[str, Any]
    network: Scorer
    bundled: bool = False

    @property
    def multi_label(self) -> bool:
        """Whether a document may have several of the labels, or none."""
        return self.network.kind == "sigmoid"

    @property
    def none_below(self) -> float | None:
        """The learnt threshold of ``contrast``; None if the training learnt none."""
        learnt: float | None = self.report.get("none_below")
        return learnt

    def share(self, label: str) -> float:
        """Share of the examples that have the label."""
        counts: dict[str, int] = self.report["labels"]
        return counts[label] / int(self.report.get("examples", sum(counts.values())))


def _size(head: Head) -> int:
    network = head.network
    if not isinstance(network, Network):
        raise TypeError("a graph of the bundle is not kept here")
    numbers = sum(array.nbytes for array in (*network.weights, *network.biases))
    return numbers + _LABEL_BYTES * len(head.labels)


class Heads:
    """Classifiers by name.

    Args:
        database: holds their table.
        table: its name; citation heads have a separate table.
        kind: name of a head in messages.
        bundled: heads of the bundles; they are never written. The first one of a name counts.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        kind: str,
        bundled: Sequence[Head] = (),
    ) -> None:
        self._brought = bundled
        self._bundled = {head.name: head for head in reversed(bundled)}
        self._table = KeyedTable(
            database,
            table,
            name=pa.string(),
            uid=pa.string(),
            revision=pa.string(),
            labels=pa.list_(pa.string()),
            report=pa.string(),
            network=pa.binary(),
            examples=pa.binary(),
        )
        self._name = table
        self._kind = kind
        self._reading = asyncio.Lock()
        self._loaded = LRUCache[str, Head](_LOADED_BYTES, _size)

    async def put(self, head: Head, examples: Examples | None = None) -> Head:
        """Store a head, and replace one of the same name; durable on return.

        Returns:
            The head; with examples, its report has the ``history`` of former trainings.

        Raises:
            ConflictError: the bundle has a head of that name.
        """
        head, row = await self._written(head, examples)
        await self._table.put(row)
        await self._keep()
        return head

    async def put_over(self, head: Head, examples: Examples, former: str | None) -> bool:
        """Store a head in place of a former one; False if its name has another head, or none.

        Args:
            former: the ``uid`` of that head; None if there was none.
        """
        _, row = await self._written(head, examples)
        if former is None:
            stored = await self._table.put(row, replace=False)
        else:
            same = sql.compare("target.uid", "=", former)
            stored = await self._table.put(row, replace=same, insert=False)
        await self._keep()
        return stored

    async def uid(self, name: str) -> str | None:
        """The ``uid`` of the stored head of a name; None without one."""
        row = await self._table.get(name, ["uid"])
        return None if row is None else row["uid"]

    async def _written(self, head: Head, examples: Examples | None) -> tuple[Head, Row]:
        """A head with its history, and its row."""
        self.require_free(head.name)
        if not isinstance(head.network, Network):
            raise TypeError("a graph of the bundle is not stored")
        blob = b""
        if examples:
            blob = await executors.STORE.run(examples.to_bytes)
            head = replace(head, report={**head.report, "history": await self._history(head)})
        row: Row = {
            "name": head.name,
            "uid": head.uid,
            "revision": head.revision,
            "labels": head.labels,
            "report": head.report,
            "network": head.network.to_bytes(),
            "examples": blob,
        }
        row["report"] = network.sealed(row)
        return head, row

    async def _keep(self) -> None:
        # before older versions are removed
        await self._table.sync()
        await self._table.tidy()

    async def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*await self._table.keys(), *self._bundled})

    def require_free(self, name: str) -> None:
        """Raise ConflictError if the bundle has a head of that name."""
        if name in self._bundled:
            raise ConflictError(
                f"the bundle has a {self._kind} of that name: use another name, or serve another "
                "bundle"
            )

    def bundled_head(self, revision: str) -> Head | None:
        """The first head of the bundle of a revision, for indexes without their own head."""
        return next((head for head in self._brought if head.revision == revision), None)

    async def get(self, name: str) -> Head:
        """A head of any revision; loaded again only if it has changed.

        Raises:
            NotFoundError: there is no head of that name.
            StoreError: the stored head is damaged.
        """
        if name in self._bundled:
            return self._bundled[name]
        uid = (await self._row(name, ["uid"]))["uid"]
        held = self._loaded.get(name)
        if held is None or held.uid != uid:
            with self._readable():
                row = await self._row(name, [*network.COLUMNS])
                row["report"] = network.unsealed(row)
                row["network"] = Network.from_bytes(row["network"])
            held = Head(**row)
            if _size(held) <= _LOADED_BYTES:
                self._loaded[name] = held
        return held

    async def current(self, name: str, revisions: Collection[str], hint: str) -> Head:
        """A head for one of some revisions.

        Raises:
            NotFoundError: there is no head of that name.
            ConflictError: it was trained on another bundle's vectors.
        """
        head = await self.get(name)
        if head.revision not in revisions:
            served = ", ".join(revision[:12] for revision in revisions)
            raise ConflictError(
                f"the {self._kind} was trained on vectors of revision {head.revision[:12]}, this "
                f"service runs {served}: {hint}"
            )
        return head

    async def examples(self, name: str, reserve: Callable[[int], None] | None = None) -> Examples:
        """The examples of a head; those of a bundle's head are unknown.

        Args:
            reserve: called with their bytes, before they are unpacked.

        Raises:
            NotFoundError: there is no head of that name.
            StoreError: the stored head is damaged.
        """
        if name in self._bundled:
            return Examples([], [])
        # one compressed list at a time until there is memory for it
        async with self._reading:
            blob = (await self._row(name, ["examples"]))["examples"]
            if reserve is not None:
                with self._readable():
                    size = await executors.STORE.run(unpacked, blob)
                reserve(size)
        with self._readable():
            return await executors.STORE.run(Examples.from_bytes, blob)

    async def labelled(self, name: str) -> set[bytes]:
        """Digests of the texts of a head's examples; none for a bundle's head.

        Raises:
            NotFoundError: there is no head of that name.
            StoreError: the stored head is damaged.
        """
        if name in self._bundled:
            return set()
        # one compressed list at a time
        async with self._reading:
            blob = (await self._row(name, ["examples"]))["examples"]
            with self._readable():
                return await executors.SCORING.run(digests, blob)

    async def delete(self, name: str) -> None:
        """Delete a head.

        Raises:
            NotFoundError: there is no head of that name.
            ConflictError: the head belongs to the bundle.
        """
        self.require_free(name)
        await self._row(name, ["name"])
        await self._table.delete(self._table.of(name))
        await self._table.sync()
        self._loaded.pop(name, None)

    async def withdraw(self, name: str, uid: str) -> None:
        """Delete the head of one training, unless another head has replaced it."""
        await self._table.delete(
            sql.every(sql.compare("name", "=", name), sql.compare("uid", "=", uid))
        )
        await self._table.sync()

    async def _history(self, head: Head) -> list[dict[str, Any]]:
        """Results of the trainings before this one."""
        try:
            former = (await self.get(head.name)).report
        except (NotFoundError, StoreError):
            return []
        point = {name: former[name] for name in _KEPT if name in former}
        return [*former.get("history", []), point][-_MOST_HISTORY:]

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
            log.error("head_damaged", table=self._name, outline=outline(error))
            raise StoreError(
                f"the stored {self._kind} is damaged: train it again", "damaged"
            ) from error

    async def _row(self, name: str, columns: list[str]) -> dict[str, Any]:
        row = await self._table.get(name, columns)
        if row is None:
            raise NotFoundError(f"there is no {self._kind} of that name")
        return row


class Graph:
    """A head's graph, with the interface of ``Network``.

    Args:
        content: of the ``.onnx`` file, because another training may replace the file.
        kind: its activation.
    """

    def __init__(self, content: bytes, kind: Kind) -> None:
        self._content = content
        self._kind: Kind = kind

    @property
    def kind(self) -> Kind:
        """The activation."""
        return self._kind

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of inputs and outputs."""
        session = self._session
        return session.get_inputs()[0].shape[1], session.get_outputs()[0].shape[1]

    def logits(self, inputs: Vectors) -> Vectors:
        """``[rows, inputs]`` to ``[rows, outputs]``."""
        return self._run("logits", inputs)

    def probabilities(self, inputs: Vectors) -> Floats:
        """Calibrated, ``[rows, outputs]``; rows of a softmax sum to 1."""
        return self._run("probabilities", inputs).astype(np.float64)

    def to_bytes(self) -> bytes:
        """The content of the ``.onnx`` file."""
        return self._content

    def _run(self, output: str, inputs: Vectors) -> Vectors:
        [found] = self._session.run([output], {"features": np.ascontiguousarray(inputs)})
        return np.asarray(found, dtype=np.float32)

    @cached_property
    def _session(self) -> InferenceSession:
        block_telemetry()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(
            self._content, options, providers=["CPUExecutionProvider"]
        )


def bundled(bundle: Bundle, kind: HeadKind) -> list[Head]:
    """The bundle's heads of a kind."""
    revision = bundle.manifest.revision
    return [
        Head(
            name=name,
            uid=bundle.manifest.files[head.file].sha256,
            revision=revision,
            labels=head.labels,
            report=head.report,
            network=Graph(bundle.path(head.file).read_bytes(), head.activation),
            bundled=True,
        )
        for name, head in bundle.manifest.heads.items()
        if head.kind == kind
    ]
