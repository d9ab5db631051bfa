"""python -m bisaddle: the command line."""

from bisaddle.cli import main

if __name__ == "__main__":
    main()
