"""Steps of processors in Spark's Python workers."""
