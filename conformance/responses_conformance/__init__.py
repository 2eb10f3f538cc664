"""Black-box conformance checks for servers of the Responses API, chat completions and Messages."""

__version__ = "0.1.0"
