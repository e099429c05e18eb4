"""Small networks on frozen document vectors: classifiers, and who cites whom."""
