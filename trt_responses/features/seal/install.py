"""What clients carry sealed."""

from __future__ import annotations

from trt_responses.features.seal.feature import Seals
from trt_responses.features.seal.sealer import Sealer, key_of, shared_keys
from trt_responses.features.seal.settings import SealSettings
from trt_responses.settings import Settings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    sealer = server.sealing = sealer_of(server.settings)
    server.features.append(Seals(sealer))


def sealer_of(settings: Settings) -> Sealer:
    """The sealer of reasoning: with the shared keys of the settings, or with a key of this server's
    own in its data directory, made when it is first needed."""
    own = SealSettings.of(settings)
    path = settings.data_dir / "seal.key"
    if own.seal_keys:
        shared = shared_keys(own.seal_keys)
        return Sealer(lambda: shared)
    if path.exists():
        key_of(path)  # one that cannot be used stops the start
    return Sealer(lambda: [key_of(path)])
