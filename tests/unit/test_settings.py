"""Settings: where they come from, and the values that stop a start."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from trt_responses.errors import StartupError
from trt_responses.settings import PREFIX, Settings


def test_every_setting_is_described_and_has_a_default() -> None:
    settings = Settings()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert not field.is_required(), name
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)


def test_the_environment_sets_every_kind_of_value() -> None:
    found = {
        "HOST": "::1",
        "PORT": "0",
        "DRAIN_S": "0.5",
        "INSECURE": "1",
        "THREADS": "3",
        "ENGINES_DIR": "/srv/engines",
        "API_KEYS": " ann:k1 ,, bob:k2,",
        "ALLOWED_HOSTS": "a.example,b.example",
        "UNKNOWN": "left alone",
        "MODEL": "",
    }
    settings = Settings.from_environment({PREFIX + name: value for name, value in found.items()})
    assert (settings.host, settings.port, settings.drain_s) == ("::1", 0, 0.5)
    assert (settings.insecure, settings.threads) == (True, 3)
    assert settings.engines_dir == Path("/srv/engines")
    assert settings.owners() == {"k1": "ann", "k2": "bob"}
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.model is None, "an empty value is none"


def test_what_is_given_comes_before_the_environment_and_none_gives_nothing() -> None:
    environment = {"TRT_RESPONSES_PORT": "1", "TRT_RESPONSES_HOST": "::1"}
    settings = Settings.from_environment(environment, port="2", host=None)
    assert (settings.port, settings.host) == (2, "::1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("PORT", value) for value in ("no", "-1", "65536", "1.5", "80 80")],
        *[("MAX_BODY_BYTES", "0"), ("MAX_RUNNING", "-1"), ("SLOTS", "0"), ("THREADS", "0")],
        *[("DRAIN_S", "-1"), ("DRAIN_S", "soon"), ("INSECURE", "maybe")],
        *[("READ_TIMEOUT_S", value) for value in ("0", "-1", "nan", "soon", "60s")],
        *[("DATE", value) for value in ("today", "2026-1-1", "2026-01-01T00:00")],
        *[("LOG_LEVEL", "loud"), ("STORE_BYTES", "1G"), ("CONTEXT_TOKENS", "nan")],
    ],
)
def test_a_value_that_will_not_parse_stops_the_start_with_its_name(name: str, value: str) -> None:
    with pytest.raises(StartupError, match=f"^{PREFIX}{name}: ") as caught:
        Settings.from_environment({PREFIX + name: value})
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_in_code() -> None:
    with pytest.raises(ValidationError):
        Settings(prot=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("keys", ["secretsecret", "ann:", ":secretsecret", "ann:k,secretsecret"])
def test_keys_without_an_owner_stop_the_start_and_are_not_shown(keys: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_API_KEYS": keys})
    with pytest.raises(StartupError, match="API_KEYS") as caught:
        settings.owners()
    assert "secret" not in str(caught.value)


def test_one_key_for_two_owners_stops_the_start() -> None:
    with pytest.raises(StartupError, match="entry 2"):
        Settings(api_keys="ann:k,bob:k").owners()
    assert Settings(api_keys="ann:k,ann:k").owners() == {"k": "ann"}
    assert Settings(api_keys="ann:k:with:colons").owners() == {"k:with:colons": "ann"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "", "example.org"])
def test_a_server_that_others_can_reach_needs_keys_or_an_operator_who_insists(host: str) -> None:
    with pytest.raises(StartupError, match="API_KEYS"):
        Settings(host=host).check_exposure()
    Settings(host=host, api_keys=("ann:k",)).check_exposure()
    Settings(host=host, insecure=True).check_exposure()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_loopback_needs_no_keys(host: str) -> None:
    Settings(host=host).check_exposure()


def test_the_address_itself_is_a_host_that_is_answered() -> None:
    assert "10.0.0.7" in Settings(host="10.0.0.7").hosts()
    assert "[fd00::7]" in Settings(host="fd00::7").hosts(), "as a Host header writes it"
    assert "a.example" in Settings(allowed_hosts=("a.example",)).hosts()
