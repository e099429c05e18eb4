"""Runtimes that turn token ids into window vectors, behind one small interface."""
