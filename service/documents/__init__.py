"""From text to vector: tokens, sentences, windows, pooling."""
