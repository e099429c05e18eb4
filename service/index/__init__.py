"""Indexes of documents: stored, filtered and searched in LanceDB."""
