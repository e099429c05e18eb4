"""Reads documents, labels, links and judgements for every tool."""
