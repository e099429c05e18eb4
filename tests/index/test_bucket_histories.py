"""Two replicas, six clients and one bucket behind a network that fails all the time."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import NIGHTLY, serving
from tests.fault_proxy import FaultProxy
from tests.index.conftest import call
from tests.index.histories import consistent
from tests.index.test_buckets import MANIFEST
from tests.index.test_histories import CLIENTS, DOCUMENTS, Client
from tests.s3_server import BUCKET

# an unknown outcome doubles the states that the checker visits
TURNS = 25


def disturb(proxy: FaultProxy, over: threading.Event) -> None:
    """Fail in turns until the end, then forward everything."""
    for mode in itertools.cycle(("lose", "refuse", "lose", "stall")):
        if over.wait(3):
            break
        if mode == "lose":
            proxy.lose = MANIFEST
        else:
            proxy.mode = "refuse" if mode == "refuse" else "stall"
            over.wait(0.5 if mode == "refuse" else 3)
            proxy.mode = "pass"
    proxy.mode, proxy.lose = "pass", None


@pytest.mark.skipif(not NIGHTLY, reason="takes a minute: nightly")
def test_documents_are_linearizable_while_the_network_fails(
    proxy: FaultProxy, tmp_path: Path
) -> None:
    flags = ("--index-path", f"s3://{BUCKET}/histories", "--bucket-timeout", "2")
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(tmp_path / name, *flags)) for name in ("one", "two", "lost")
        ]
        call(servers[0], "PUT", "/indexes/register", {}, status=201)
        places = [f"{server.url}/indexes/register/documents" for server in servers]
        over = threading.Event()
        shaking = threading.Thread(target=disturb, args=(proxy, over))
        clients = [Client(number, places[:2], TURNS, faults=True) for number in range(CLIENTS)]
        # these write through a replica that is killed
        clients += [Client(CLIENTS + number, places[2:], TURNS, faults=True) for number in range(2)]
        for thread in (shaking, *clients):
            thread.start()
        time.sleep(5)
        servers[2].process.send_signal(signal.SIGKILL)
        for client in clients:
            client.join()
        over.set()
        shaking.join()
        for client in clients:
            if client.failed is not None:
                raise client.failed
        found = {name: [e for c in clients for e in c.events[name]] for name in DOCUMENTS}
        assert proxy.lost > 2
        results = [e.operation.result for events in found.values() for e in events]
        assert results.count("unknown") > 2
        assert results.count("done") > CLIENTS * TURNS / 4
        for name, events in found.items():
            assert consistent(events), (name, sorted(events, key=lambda event: event.call))
