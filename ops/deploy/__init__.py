"""Processors that are kept running: versions of their code, what keeps their workers alive, and going from one version to the next."""
