"""From a document's text to tokens, sentences and windows; from window vectors to one vector."""
