"""File stores for backups and the warehouse, on this machine and on HDFS."""
