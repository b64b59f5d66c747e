"""How a deployment is doing: where its processors stand."""
