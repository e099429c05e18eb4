"""Files of texts, and the jobs that make files of vectors of them."""
