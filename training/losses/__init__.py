"""Contrastive losses, masked language modelling, and gradients of batches larger than memory."""
