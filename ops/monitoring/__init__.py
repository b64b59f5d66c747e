"""Monitoring: the status, findings and metrics of processors."""
