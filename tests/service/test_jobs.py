"""Jobs of a process, with a real table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.index.indexes import connect
from service.jobs.runner import Runner, Task
from service.jobs.table import Jobs
from service.metrics import Metrics


class Store:
    """A store without indexes."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)

    async def database(self, part: str) -> Any:
        return await connect(f"{self.path}/{part}")


class Done:
    """The progress of a job that has nothing to say."""

    def counts(self) -> dict[str, int]:
        return {"documents": 1}

    def details(self) -> dict[str, Any]:
        return {}


def test_a_job_that_ends_as_the_service_stops_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = asyncio.Event()
    written = Jobs.end

    async def slow(jobs: Jobs, job: Any) -> None:
        writing.set()
        await asyncio.sleep(0.2)
        await written(jobs, job)

    monkeypatch.setattr(Jobs, "end", slow)

    async def work() -> None:
        """Nothing."""

    async def stop() -> Any:
        runner = Runner(Store(tmp_path), Metrics())  # type: ignore[arg-type]
        job = await runner.begin(
            Task("map", "index", "", Done(), work, lambda: None, "the service stopped")
        )
        await writing.wait()
        await runner.close()
        return await (await runner.jobs()).get(job.id)

    job = asyncio.run(stop())
    assert (job.state, job.error, job.progress) == ("succeeded", "", {"documents": 1})
