"""The contents that log lines leave out."""

from __future__ import annotations

import json
import subprocess
import sys

from service.logs import outline
from tests.conftest import ROOT

SECRET = "caller-secret-4410"

PROGRAM = f"""
import asyncio, logging, sys
from service import logs
logs.configure("info", sys.argv[1])

async def fail():
    raise ValueError("{SECRET}")

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


def said(form: str) -> str:
    command = [sys.executable, "-c", PROGRAM, form]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr


def test_libraries_log_exceptions_without_messages() -> None:
    lines = [json.loads(line) for line in said("json").splitlines()]
    assert {line["logger"] for line in lines} == {"uvicorn.error", "asyncio"}
    assert all("ValueError" in line["outline"] for line in lines)
    assert SECRET not in json.dumps(lines)
    assert SECRET not in said("text")


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
