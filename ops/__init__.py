"""What joins the parts: the worker, the test driver, local services and the command line."""
