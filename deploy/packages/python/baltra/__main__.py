"""`baltra …` and `python -m baltra …`: the command line."""

import os
import sys

from ._program import PROGRAM, environment


def main() -> None:
    """Replaces this process by the program."""
    os.execve(PROGRAM, ["baltra", *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
