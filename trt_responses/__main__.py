"""`python -m trt_responses`."""

import sys

from trt_responses.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
