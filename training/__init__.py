"""The training room: unlabelled documents become an encoder."""
