"""`make bench`: this service beside other embedding servers."""
