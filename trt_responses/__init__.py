"""An OpenAI Responses API server for gpt-oss style models.

To serve one, run `trt-responses serve`. To embed the app in a program, take `create_app` and
`Settings` from here; they are loaded when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_responses.app import create_app
    from trt_responses.settings import Settings

__all__ = ["Settings", "__version__", "create_app"]

__version__ = "0.1.0"

if not TYPE_CHECKING:  # a type checker would take it for a promise of every name

    def __getattr__(name: str) -> object:
        if name == "create_app":
            from trt_responses.app import create_app

            return create_app
        if name == "Settings":
            from trt_responses.settings import Settings

            return Settings
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """The public names; a module of the package appears by its own import alone."""
        return __all__
