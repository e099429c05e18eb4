"""Train heads on the vectors of a bundle as the service does, and put them into the bundle."""
