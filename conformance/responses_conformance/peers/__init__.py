"""Other servers, each in processes of its own, over a mock engine."""
