"""Routes to indexes and to the documents in them."""
