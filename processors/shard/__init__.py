"""The shard engine, shared by the live worker, replay, the dashboard's dry run and batch jobs."""
