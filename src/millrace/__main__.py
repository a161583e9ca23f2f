"""`python -m millrace` is the `millrace` command."""

from millrace.cli import main

main()
