"""Small networks on frozen vectors: classifiers and citation heads, trained with scikit-learn."""
