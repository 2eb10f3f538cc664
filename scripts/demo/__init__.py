"""The demo model: its conversations, its training and its examination."""
