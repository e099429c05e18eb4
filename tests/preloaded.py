"""Imports and data that every service needs. Services are forked from a process that has them."""

import gc
from importlib import import_module

from docsplit.engines.telemetry import block_telemetry
from features.page import pages

# imports make no garbage, and passes over them take time
gc.disable()
block_telemetry()
for name in (
    "openvino",
    "service.__main__",
    "service.server.serving",
    "service.server.lifecycle",
    # for the settings and the event loop
    "yaml",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    # for the first request to an index, the first training, and the reader of damaged files
    "service.index.maintenance",
    "service.index.reembed",
    "service.index.maintenance",
    "service.index.store",
    "docsplit.heads.training",
    "service.bulk.verifying",
):
    import_module(name)
pages.load("swagger", "docs")
pages.load("ui", "page")
# a collection would touch, and so copy, the memory that all services share
gc.freeze()
gc.enable()
