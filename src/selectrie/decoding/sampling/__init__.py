"""Samples one sequence: the sampler chain, stop texts and drafts."""
