"""`python -m nimblevm.cli`: the same as the console script."""

import sys

from nimblevm.cli import main

sys.exit(main())
