"""Command-line faces and the training of the demo model; run from the repository's root."""
