"""`python -m responses_conformance`."""

import sys

from responses_conformance.cli import main

sys.exit(main())
