"""Pages for browsers: the page at / and Swagger UI at /docs, from files beside this module."""
