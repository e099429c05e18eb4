"""Registers files: POST /read, and uploads to indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from features.files.background import Uploads
from service.features import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter, Request

    from service.server.lifecycle import Service


class Files(Feature):
    """Reads files into text, and indexes uploaded ones."""

    name = "files"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        settings = service.settings
        self.uploads = Uploads(
            service.store,
            service.jobs,
            settings.max_upload_disk_bytes,
            service.metrics,
            settings.ocr,
        )

    @staticmethod
    def routers() -> Sequence[APIRouter]:
        """The routes."""
        from features.files import read, routes

        return routes.router, read.router

    async def stop(self) -> None:
        """End the reading of files."""
        await self.uploads.texts.close()


FEATURE = Files


def uploads_of(request: Request) -> Uploads:
    """The uploads of the process that answers a request."""
    files: Files = request.app.state.service.features["files"]
    return files.uploads
