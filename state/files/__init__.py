"""Files that appear whole or not at all, on this machine and on HDFS."""
