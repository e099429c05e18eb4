"""The contents that log lines leave out."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from service.logs import outline
from tests import forked
from tests.conftest import ROOT

SECRET = "caller-secret-4410"

PROGRAM = """
import asyncio, logging, sys
from service import logs
logs.configure("info", "{form}")

async def fail():
    raise ValueError("{secret}")

async def main():
    try:
        await fail()
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task

asyncio.run(main())
"""


def program(form: str) -> str:
    return PROGRAM.format(form=form, secret=SECRET)


def said(form: str) -> str:
    done = forked.program(program(form), folder=ROOT)
    assert done.returncode == 0
    return done.stderr


def test_libraries_log_exceptions_without_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = [json.loads(line) for line in said("json").splitlines()]
    assert {line["logger"] for line in lines} == {"uvicorn.error", "asyncio"}
    assert all("ValueError" in line["outline"] for line in lines)
    assert SECRET not in json.dumps(lines)
    text = said("text")
    assert SECRET not in text
    assert "ValueError" in text
    assert "\x1b[" not in text


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_text_in_an_event_begins_no_line_and_moves_no_cursor(form: str) -> None:
    named = "a\n2026-01-01 forged\r\x1b[2K\x85\u2028\u202eb"
    code = f"""
import logging
import structlog
from service import logs
logs.configure("info", "{form}")
structlog.get_logger("docsplit").warning("store_failed", error={named!r}, few=[{named!r}])
logging.getLogger("other").warning("of a library: %s", {named.replace(chr(10), "")!r})
"""
    done = forked.program(code, folder=ROOT)
    assert done.returncode == 0
    lines = done.stderr.removesuffix("\n").split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() and "forged" in line for line in lines)


@pytest.mark.parametrize(("plain", "coloured"), [(None, True), ("", True), ("1", False)])
def test_only_terminals_get_colours(
    plain: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain is not None:
        monkeypatch.setenv("NO_COLOR", plain)
    ours, its = pty.openpty()
    try:
        command = [sys.executable, "-c", program("text")]
        subprocess.run(command, cwd=ROOT, stderr=its, check=True)
        shown = os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(its)
    assert b"Exception in ASGI application" in shown
    assert (b"\x1b[" in shown) is coloured


def test_an_outline_names_causes_first() -> None:
    def cause() -> None:
        raise KeyError(SECRET)

    try:
        try:
            cause()
        except KeyError as error:
            raise RuntimeError(SECRET) from error
    except RuntimeError as error:
        lines = outline(error)
    assert lines[0] == "KeyError"
    assert "RuntimeError" in lines
    assert lines[-1].startswith(__file__)
    assert SECRET not in str(lines)
