"""One reader of documents, labels, links and judgements for every tool."""
