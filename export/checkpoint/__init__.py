"""Read a checkpoint: its modules, attention, position codes and tokenizer."""
