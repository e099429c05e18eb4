"""Rankings of documents and near-duplicates: top terms, fusion, MinHash."""
