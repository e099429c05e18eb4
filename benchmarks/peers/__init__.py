"""Other embedding servers, each in an environment of its own, on the default bundle's weights."""
