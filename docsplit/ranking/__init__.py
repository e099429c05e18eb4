"""Rankings of documents and near-duplicates: top terms, fusion, adapted cosines, MinHash."""
