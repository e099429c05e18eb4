"""The training turns unlabelled documents into an encoder."""
