"""The command `python -m penstock`, an alias of `penstock`."""

from .command import main

if __name__ == "__main__":
    main()
