"""What is learned: classifiers, the citation head, and the speed of training."""
