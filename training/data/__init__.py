"""From files of documents to token ids on disk, shuffled and batched."""
