"""The record of operations that change something."""
