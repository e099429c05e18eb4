"""Read documents, store their token ids on disk, shuffle and batch them."""
