"""The checks. Importing this package registers all of them."""

from responses_conformance.checks import chat as chat
from responses_conformance.checks import errors as errors
from responses_conformance.checks import messages as messages
from responses_conformance.checks import output as output
from responses_conformance.checks import runs as runs
from responses_conformance.checks import state as state
from responses_conformance.checks import stream as stream
from responses_conformance.checks import websocket as websocket
from responses_conformance.checks.base import CHECKS as CHECKS
