"""Plans of replacements of rows, so that an interrupted repair loses no document.

Damaged rows are deleted before their repaired form is written: two rows of one id would both be
served, and a merge cannot read a file that is still damaged. In between, the rows exist only in a
plan in the quarantine. The next repair carries out the plans of an interrupted one, and reports
what that one did not get to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from service import executors
from service.index.documents import Index
from service.index.rows import records
from service.index.rows.record import Record
from service.index.storage import ledger
from service.integrity.outcome import Outcome

NAME = "unfinished.arrow"
_SAID = b"docsplit.outcome"
_BATCH = 1024


class Plans:
    """The plans of one repair.

    Args:
        root: ``index_path``.
        outcome: of the repair.
    """

    def __init__(self, root: Path, outcome: Outcome) -> None:
        self._root = root
        self._outcome = outcome
        self._own: list[Path] = []

    async def make(
        self,
        aside: Path,
        index: Index,
        written: Sequence[tuple[Record, int]],
        tombstones: Mapping[str, int],
        said: Outcome,
    ) -> Path:
        """Put a plan on the disk; until it is carried out, the rows may be deleted.

        Args:
            aside: a folder in the quarantine.
            written: rows to write, with the time of each.
            tombstones: times of deleted documents, by id.
            said: what the next repair reports if this one is interrupted.

        Raises:
            OSError: there is no room for it.
        """
        parts = []
        for start in range(0, len(written), _BATCH):
            some, times = zip(*written[start : start + _BATCH], strict=True)
            parts.append(records.stamped(await index.rows(some), times))
        if tombstones:
            parts.append(records.tombstones(tombstones, index.schema))
        plan = aside / NAME
        await executors.STORE.run(_write, plan, index.schema, parts, said)
        self._own.append(plan)
        return plan

    async def carry_out(self, index: Index, plan: Path, said: Outcome) -> None:
        """Write the rows of a plan, unless documents were written later."""
        for part in _parts(plan, index.schema):
            # by default LanceDB rejects the missing vectors of tombstones
            bad = "null" if part["deleted"][0].as_py() else "error"
            await index.merge_rows(records.completed(part, index.schema), on_bad_vectors=bad)
        # a second time, they could bring back a document that was deleted in between
        await executors.STORE.run(_write, plan, index.schema, [], said)

    async def resume(self, index: Index) -> None:
        """Carry out the plans of interrupted repairs of a table, whose files can all be read."""
        for plan in of_table(self._root, index.table.name):
            if plan in self._own:
                continue
            try:
                said = _said(plan)
                await self.carry_out(index, plan, said)
            except (KeyError, ValueError):
                self._outcome.left.append(
                    f"indexes/{index.table.name}: rows that an interrupted repair took out: "
                    f"{plan.relative_to(self._root)} is damaged: rows.arrow next to it has their "
                    f"former state; then remove {NAME}"
                )
                continue
            self._own.append(plan)
            self._outcome.repaired += said.repaired
            self._outcome.lost += said.lost

    def end(self) -> None:
        """Remove the plans: all were carried out, and the repair can report them."""
        while self._own:
            self._own.pop().unlink()


def of_table(root: Path, table: str) -> list[Path]:
    """The plans of a table of the database ``indexes``, the oldest first."""
    found = (root / ledger.QUARANTINE / "indexes").glob(f"{table}.*/{NAME}")
    return sorted(p for p in found if p.parent.name.removeprefix(f"{table}.").isdigit())


def _write(plan: Path, schema: pa.Schema, parts: Sequence[pa.Table], said: Outcome) -> None:
    """Write or replace a plan; it is on disk when this returns. A former one stays until then."""
    scratch = plan.with_name(f"{NAME}#written")
    about = {**(schema.metadata or {}), _SAID: json.dumps(asdict(said))}
    try:
        with scratch.open("wb") as file:
            with pa.ipc.new_file(file, schema.with_metadata(about)) as stream:
                for part in parts:
                    # a part has only documents or only tombstones
                    stream.write_table(part.select(schema.names))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(plan)
    finally:
        scratch.unlink(missing_ok=True)
    for folder in (plan.parent, plan.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parts(plan: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    with pa.memory_map(str(plan)) as file, pa.ipc.open_file(file) as stream:
        for number in range(stream.num_record_batches):
            held = pa.Table.from_batches([stream.get_batch(number)])
            if held.num_rows:
                yield held.replace_schema_metadata(schema.metadata)


def _said(plan: Path) -> Outcome:
    with pa.memory_map(str(plan)) as file, pa.ipc.open_file(file) as stream:
        return Outcome(**json.loads((stream.schema.metadata or {})[_SAID]))
