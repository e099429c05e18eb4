"""`make bench`: compare this service with other embedding servers."""
