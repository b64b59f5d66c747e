"""Moving a processor's positions and states from outside, while no worker of it runs: reset, and another number of buckets."""
