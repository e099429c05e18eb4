"""From text to vector: documents, cache, batching and engines, in this order."""
