"""How the texts of a job are embedded, and how far the job is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from windowing.tokens import Side

if TYPE_CHECKING:
    from service.jobs.table import Job

# bytes of a component of a vector, and of an id and an error
_COMPONENT, _REST = 4, 64
# further replicas may go on with a job after so many ended at the same block
MOST_DEATHS = 2
# counts of other kinds of jobs, which earlier versions read of every job
_OTHERS = ("files", "done", "failed", "written", "unchanged", "refused")


@dataclass(frozen=True, slots=True)
class Options:
    """How texts are embedded.

    Attributes:
        revision: of the bundle.
        prompt: text before every window.
        width: components of a vector.
        shorten: whether these are the first of more components.
        normalize, truncate, side: as in ``POST /embed``.
    """

    revision: str
    prompt: str
    width: int
    shorten: bool = False
    normalize: bool = True
    truncate: bool = False
    side: Side = "right"


@dataclass(slots=True)
class Progress:
    """How far a job is.

    Attributes:
        began: see ``Place``.
        blocks, texts: of the file.
        bytes: of the texts, until they all have vectors, and of the vectors.
        embedded: texts with a vector.
        refused: texts without one.
        written: blocks that were written when a replica last took the job over.
        deaths: replicas that ended since then, without another written block.
    """

    options: Options
    began: int
    blocks: int = 0
    texts: int = 0
    bytes: int = 0
    embedded: int = 0
    refused: int = 0
    written: int = 0
    deaths: int = 0

    @classmethod
    def of(cls, job: Job) -> Progress:
        """The progress of a job of the table."""
        held = {**job.details}
        options = Options(**held.pop("options"))
        count = job.progress
        return cls(
            options,
            texts=count["texts"],
            bytes=count["bytes"],
            embedded=count["texts_embedded"],
            refused=count["texts_refused"],
            **held,
        )

    def vector_bytes(self, texts: int) -> int:
        """The size of so many vectors in the table."""
        return texts * (_COMPONENT * self.options.width + _REST)

    def counts(self) -> dict[str, int]:
        """The numbers of texts and bytes."""
        return {
            **dict.fromkeys(_OTHERS, 0),
            "texts": self.texts,
            "texts_embedded": self.embedded,
            "texts_refused": self.refused,
            "bytes": self.bytes,
        }

    def details(self) -> dict[str, Any]:
        """What another replica needs to go on."""
        return {
            "options": asdict(self.options),
            "began": self.began,
            "blocks": self.blocks,
            "written": self.written,
            "deaths": self.deaths,
        }
