"""The service: it receives whole documents over HTTP and returns vectors."""
