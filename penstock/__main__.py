"""The command `python -m penstock`, an alias of `penstock`."""

from .ops.cli import main

if __name__ == "__main__":
    main()
