"""Quality of classifiers and the citation head, and the speed of training."""
