"""The service room: whole documents in, vectors out, over HTTP."""
