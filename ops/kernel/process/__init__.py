"""The process of a worker: its command, resources and identity."""
