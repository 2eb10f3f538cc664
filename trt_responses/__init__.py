"""An OpenAI Responses API server for gpt-oss style models."""

__version__ = "0.1.0"
