"""Commands of deployments."""
