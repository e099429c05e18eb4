"""What several benchmarks share: the service as a process, a load client, texts and plots."""
