"""Merging the small files of a large table, in a process of its own and in bounded memory."""
