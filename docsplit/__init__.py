"""The library: windows and vectors of whole documents, classifiers, and rankings of them."""
