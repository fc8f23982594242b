"""`python -m nimblevm`: the same as the console script. Nothing imports this module."""

import sys

from nimblevm.cli import main

sys.exit(main())
