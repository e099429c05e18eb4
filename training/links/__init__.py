"""Links between documents as supervision: linked documents are the positive pairs.

Cohan et al. 2020, "SPECTER", and Ostendorff et al. 2022, "SciNCL", train on citations in this way.
"""
