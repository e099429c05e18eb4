"""Links that the service finds in the documents' texts, kept apart from those that users give."""
