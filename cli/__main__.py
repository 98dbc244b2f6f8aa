"""`python -m rollbox.cli`."""

from .main import main

main()
