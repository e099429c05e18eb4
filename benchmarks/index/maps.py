"""Time and memory of the map of an index, and the agreement of its topics with a field.

    python -m benchmarks.index.maps FOLDER --index NAME [--field FIELD]

FOLDER is the ``index_path`` of a service. The index is only read. The process that computes the map
is the one that a service starts, so its time includes the import of libraries.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path

from service.index.maps import stored
from service.mapping import background


@dataclass(slots=True)
class Steps:
    """Remembers when each step began, in place of the progress of a job."""

    documents: int = 0
    share: float = 0.0
    began: dict[str, float] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """The present step."""
        return next(reversed(self.began), "")

    @step.setter
    def step(self, name: str) -> None:
        self.began.setdefault(name, time.monotonic())


async def measure(folder: str, table: str, labels: str | None) -> None:
    """Compute a map and print what it took."""
    steps, started = Steps(), time.monotonic()
    row = await background._computed(folder, table, steps)  # type: ignore[arg-type]
    ended = time.monotonic()
    made = stored._map(row)
    assert made is not None
    times = [started, *list(steps.began.values())[1:], ended]
    for name, begin, end in zip(steps.began, times, times[1:], strict=False):
        print(f"{name:10} {end - begin:7.1f} s")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{'all':10} {ended - started:7.1f} s, {used.ru_utime + used.ru_stime:.1f} s of a core")
    print(f"{used.ru_maxrss / 1024:.0f} MB at most, load of the machine {os.getloadavg()[1]:.1f}")
    size = sum(len(value) for value in row.values() if isinstance(value, bytes))
    without = (made.topic < 0).mean()
    print(f"{len(made.ids)} documents, {size / 2**20:.1f} MiB stored")
    print(f"{len(made.topics)} topics, {without:.2f} of the documents without one")
    for number, topic in enumerate(made.topics[:10]):
        print(f"{(made.topic == number).sum():7} {', '.join(topic.words[:6])}")
    if labels is not None:
        await _compare(folder, table, made, labels)


async def _compare(folder: str, table: str, made: stored.Map, labels: str) -> None:
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from service.index.documents import LIVE
    from service.index.rows.schema import PREFIX
    from service.index.storage.database import connect

    opened = await (await connect(f"{folder}/indexes")).open_table(table)
    found = await opened.query().where(LIVE).select(["id", PREFIX + labels]).to_arrow()
    value_of = dict(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))
    values = [str(value_of[name]) for name in made.ids]
    kept = made.topic >= 0
    named = [value for value, one in zip(values, kept, strict=True) if one]
    every = normalized_mutual_info_score(values, made.topic)
    some = normalized_mutual_info_score(named, made.topic[kept])
    print(f"NMI {every:.3f}, of documents with a topic {some:.3f}")
    print(f"adjusted Rand index {adjusted_rand_score(values, made.topic):.3f}")


def main() -> None:
    """Measure the index that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", required=True)
    parser.add_argument("--field", help="compare the topics with the values of this field")
    given = parser.parse_args()
    [place] = (given.folder / "indexes").glob(f"{given.index}.*.lance")
    asyncio.run(measure(str(given.folder), place.name.removesuffix(".lance"), given.field))


if __name__ == "__main__":
    main()
