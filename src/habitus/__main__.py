"""`python -m habitus`."""

from habitus.cli.main import main

main()
