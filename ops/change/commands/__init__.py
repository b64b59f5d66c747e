"""Commands that change states and positions."""
