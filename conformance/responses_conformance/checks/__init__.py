"""The checks. Importing this package registers all of them, in the order of their modules."""

from responses_conformance.checks import stream as stream
from responses_conformance.checks.base import CHECKS as CHECKS
