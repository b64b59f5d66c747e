"""`python -m penstock`, the same as the command `penstock`."""

from .ops.cli import main

if __name__ == "__main__":
    main()
