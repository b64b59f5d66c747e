"""The engine: what the live worker, replay, the dashboard's dry run and batch jobs share to run one shard."""
