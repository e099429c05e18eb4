"""What a hybrid search is made of: the top terms of a text, and the fusion of rankings."""
