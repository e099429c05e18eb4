"""A document's text to tokens, sentences and windows, and window vectors to one vector."""
