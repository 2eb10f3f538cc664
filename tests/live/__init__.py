"""On a GPU host, with the real package: `make live`. Skipped elsewhere, and the reason is shown."""
