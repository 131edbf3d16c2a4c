"""`python -m fedgsp`: the command line."""

from fedgsp.cli.main import main

if __name__ == "__main__":
    main()
