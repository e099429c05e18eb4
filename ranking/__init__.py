"""The parts of a hybrid search: the top terms of a text, and the fusion of rankings."""
