"""`python -m privset`, for where the command is not installed."""

import sys

from privset.cli.main import main

sys.exit(main())
