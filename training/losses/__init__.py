"""Contrastive losses and masked language modelling."""
