"""Several processes answer HTTP; one has the engine and the cache, and looks after them."""
