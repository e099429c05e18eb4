"""A first, simple server with sentence-transformers and FastAPI. Runs in its own environment.

python plain_server.py FOLDER PORT
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer
from starlette.concurrency import run_in_threadpool


class Texts(BaseModel):
    """The texts to embed."""

    texts: list[str]


def main() -> None:
    """Load, serve."""
    folder, port = sys.argv[1:]
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    app = FastAPI()

    @app.get("/health")
    async def health() -> None:
        pass

    @app.post("/embed")
    async def embed(body: Texts) -> list[list[float]]:
        vectors = await run_in_threadpool(model.encode, body.texts, show_progress_bar=False)
        rows: list[list[float]] = vectors.tolist()
        return rows

    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
