"""Shared parts of the benchmarks: the service as a process, a load client, texts and plots."""
