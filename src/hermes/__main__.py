"""Make `python -m hermes` the same command as `hermes`."""

from hermes.cli import main

if __name__ == "__main__":
    main()
