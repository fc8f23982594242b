"""`python -m nimblevm.cli`: the same as `python -m nimblevm`."""

import sys

from nimblevm.cli import main

sys.exit(main())
