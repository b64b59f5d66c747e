"""Deployments: versions of processors, supervisors of their workers, and rollouts."""
