"""Settings: where they come from, and the values that stop a start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

import trt_responses
from trt_responses.backends.keys import check_exposure
from trt_responses.backends.settings import EngineSettings
from trt_responses.backends.store_place import store_place
from trt_responses.backends.stores import store_of
from trt_responses.backends.tools import interpreter_bytes
from trt_responses.errors import StartupError
from trt_responses.features.cors.settings import CorsSettings
from trt_responses.features.limits.settings import KeySettings
from trt_responses.fleet.settings import silence_s
from trt_responses.settings import PREFIX, Settings, secrets, variables, whole
from trt_responses.settings.core import CoreSettings
from trt_responses.settings.groups import check_apart, gone, listed, settable
from trt_responses.settings.values import Seconds, SettingGroup
from trt_responses.stores.whole import says_nothing

FIXED = [name for name in whole().model_fields if name not in variables()]
URLS = ("SEARCH_URL", "WEBHOOK_URL", "OTLP_ENDPOINT")
FOLDERS = ("DATA_DIR", "ENGINES_DIR", "FILES")
HEADER_KEYS = ("ADMIN_KEY", "METRICS_KEY", "SEARCH_KEY")
SECONDS = [name.upper() for name in variables() if name.endswith("_s")]


def test_every_setting_is_described_and_has_a_default() -> None:
    settings = Settings()
    for name, field in whole().model_fields.items():
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
    assert (settings.insecure, EngineSettings.of(settings).threads) == (True, 3)
    assert settings.engines_dir == Path("/srv/engines")
    assert KeySettings.of(settings).owners() == {"k1": "ann", "k2": "bob"}
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.model_name is None, "an empty value is none"


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
        *[("LEASE_S", value) for value in ("0", "-1", "nan", "soon", "60s")],
        *[("DATE", value) for value in ("today", "2026-1-1", "2026-01-01T00:00")],
        *[("DATE", value) for value in ("2020-13-45", "2025-02-29", "20260101", "2026-W01-1")],
        *[("LOG_LEVEL", "loud"), ("STORE_BYTES", "1G"), ("CONTEXT_TOKENS", "nan")],
        *[(name, "inf") for name in SECONDS],
        *[(name, "1e300") for name in SECONDS],
        *[(name, "nan") for name in SECONDS],
        *[(name, "1e-300") for name in ("LEASE_S", "STALL_S")],
        *[(name, str(10**30)) for name in ("THREADS", "SLOTS", "CONTEXT_TOKENS", "MAX_BODY_BYTES")],
        *[("MODEL", "a\nb"), ("MODEL", "\udcff"), ("IDENTITY", "one\r\ntwo")],
        *[("ALLOWED_HOSTS", value) for value in ("https://a.example", "a.example:80", "::1")],
        *[("ALLOWED_ORIGINS", value) for value in ("a.example", "https://a.example/", "https://")],
        *[("ALLOWED_ORIGINS", value) for value in ("http://h:80a", "http://[::1")],
        *[(name, value) for name in URLS for value in ("h", "ftp://h", "http://", "http://h:80a")],
        *[(name, value) for name in URLS for value in ("http://h:80800", "http://[::1", "//h")],
        *[(name, value) for name in URLS for value in ("http://h/ b", "http://h\n", "//\udcff")],
        *[("PRIVATE_NETWORKS", value) for value in ("h", "10.0.0.1/8", "10.0.0.0/8,10.0.0.0/99")],
        *[(name, value) for name in FOLDERS for value in ("/dev/null", "/dev/null/x")],
        *[(name, value) for name in HEADER_KEYS for value in ("ké", "k\r", "\udcff")],
        *[("API_KEYS", "ann:k\x01y"), ("WEBHOOK_SECRET", "k\udcff"), ("MODEL", "a,b\nc")],
        *[("SEARCH_URL", f"http://me:key@h:{'9' * 5000}"), ("PORT", "9" * 5000)],
    ],
)
def test_a_value_that_will_not_parse_stops_the_start_with_its_name(name: str, value: str) -> None:
    with pytest.raises(StartupError, match=f"^{PREFIX}{name}: ") as caught:
        Settings.from_environment({PREFIX + name: value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 350
    assert name.lower() not in secrets() or value not in str(caught.value)
    assert "me:key" not in str(caught.value)


def test_an_unknown_name_is_refused_in_code() -> None:
    with pytest.raises(ValidationError):
        Settings(prot=1)


@pytest.mark.parametrize("keys", ["secretsecret", "ann:", ":secretsecret", "ann:k,secretsecret"])
def test_keys_without_an_owner_stop_the_start_and_are_not_shown(keys: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_API_KEYS": keys})
    with pytest.raises(StartupError, match="API_KEYS") as caught:
        KeySettings.of(settings).owners()
    assert "secret" not in str(caught.value)


def test_one_key_for_two_owners_stops_the_start() -> None:
    with pytest.raises(StartupError, match="entry 2"):
        KeySettings.of(Settings(api_keys="ann:k,bob:k")).owners()
    assert KeySettings.of(Settings(api_keys="ann:k,ann:k")).owners() == {"k": "ann"}
    assert KeySettings.of(Settings(api_keys="ann:k:with:colons")).owners() == {
        "k:with:colons": "ann"
    }


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "", "example.org"])
def test_a_server_that_others_can_reach_needs_keys_or_an_operator_who_insists(host: str) -> None:
    with pytest.raises(StartupError, match="API_KEYS"):
        check_exposure(Settings(host=host))
    check_exposure(Settings(host=host, api_keys=("ann:k",)))
    check_exposure(Settings(host=host, keys_file=Path("keys.json")))
    check_exposure(Settings(host=host, insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_loopback_needs_no_keys(host: str) -> None:
    """What is exposed without a key raises, as above."""
    check_exposure(Settings(host=host))


def test_the_address_itself_is_a_host_that_is_answered() -> None:
    assert "10.0.0.7" in Settings(host="10.0.0.7").hosts()
    assert "[fd00::7]" in Settings(host="fd00::7").hosts(), "as a Host header writes it"
    assert "a.example" in Settings(allowed_hosts=("a.example",)).hosts()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (None, ("memory", "")),
        ("memory://", ("memory", "")),
        ("sqlite:///some/where.db", ("sqlite", "some/where.db")),
        ("sqlite:////some/where.db", ("sqlite", "/some/where.db")),
        ("sqlite:///a?synchronous=full", ("sqlite", "a", "full")),
        *[
            (url, ("redis", url))
            for url in (
                *("redis://h", "redis://:secret@h:1/0", "rediss://h?ssl_cert_reqs=none"),
                *("redis://[::1]:6379/", "unix:///run/redis.sock?db=3", "redis://u:p@h?db=1"),
            )
        ],
    ],
)
def test_a_store_s_place_is_read_from_its_url(url: str | None, place: tuple[str, ...]) -> None:
    assert store_place(Settings(store=url)) == (*place, "normal")[:3]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "mysql://h",
            "memory://x",
            "sqlite:///a?sync=off",
            "sqlite://",
            "sqlite:///",
            "history.db",
            "redis://",
        ),
        "sqlite:///a?sync=off",
        *("redis://h:secret", "redis://h:0", "redis://h:70000", "redis://h/secret", "redis://h/-1"),
        *("redis://h?secret=1", "redis://h?db=secret", "unix://", "redis://[h", "redis:///1"),
        *("postgresql://[::1/x", "postgresql://\udcff/x", "redis://\udcff"),
    ],
)
def test_a_store_that_is_nowhere_stops_the_start_with_a_reason(url: str) -> None:
    with pytest.raises(StartupError, match=f"^{PREFIX}STORE: ") as caught:
        store_of(Settings(store=url), says_nothing)
    assert len(str(caught.value)) > len(f"{PREFIX}STORE: .")
    assert "\n" not in str(caught.value)
    assert "[" not in url or "the port" not in str(caught.value)


def test_memory_of_an_interpreter_is_a_share_of_half_the_machine_or_1_gib(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for gib, containers, share in ((8, 16, 1), (64, 16, 2), (64, 4, 8), (2, 1, 1)):
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: {gib * 2**20} kB\n")
        settings = Settings(containers=containers)
        assert interpreter_bytes(settings, tmp_path) == share * 2**30, (gib, containers)
    assert interpreter_bytes(settings, tmp_path / "elsewhere") == 2**30


def test_a_heartbeat_is_awaited_for_a_sixth_of_the_time_of_a_stall() -> None:
    times = {stall_s: silence_s(Settings(stall_s=stall_s)) for stall_s in (120, 600, 12, 3, 0.001)}
    assert times == {120: 20, 600: 100, 12: 5, 3: 5, 0.001: 5}


def test_a_store_s_password_is_not_repeated() -> None:
    for url in ("redis://:secret@h:port/0", "redis://:secret@h/x", "mysql://u:secret@h"):
        with pytest.raises(StartupError) as caught:
            store_of(Settings(store=url), says_nothing)
        assert "secret" not in str(caught.value)


def test_a_key_that_no_header_carries_stops_the_start() -> None:
    with pytest.raises(StartupError, match="entry 2"):
        KeySettings.of(Settings(api_keys="ann:k,bob:schlüssel")).owners()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TRT_RESPONSES_PROT", "TRT_RESPONSES_PORT?"),
        ("TRT_RESPONSES_MAX_BODY_SIZE", "TRT_RESPONSES_MAX_BODY_BYTES?"),
        ("TRT_RESPONSES_ALLOWED_ORIGIN", "TRT_RESPONSES_ALLOWED_ORIGINS?"),
        ("trt_responses_port", "TRT_RESPONSES_PORT?"),
        ("TRT_RESPONSES_XYZZY", "docs/settings.md"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_setting(
    variable: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    Settings.from_environment({variable: "1", "TRT_RESPONSES_HOST": "::1", "PORT": "no"})
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"{variable} is not a setting")
    assert meant in record.getMessage()


def test_origins_are_compared_as_browsers_write_them() -> None:
    given = Settings(allowed_origins="https://App.example, http://localhost:3000, null")
    origins = CorsSettings.of(given).allowed_origins
    assert origins == (
        "https://app.example",
        "http://localhost:3000",
        "null",
    )


@pytest.mark.parametrize("name", [*gone(), *FIXED])
def test_a_variable_that_went_is_refused_with_what_to_do_instead(name: str) -> None:
    variable = PREFIX + name.upper()
    with pytest.raises(StartupError, match=f"^{variable} is not a setting any more: ") as caught:
        Settings.from_environment({variable: "1"})
    meant = set(re.findall(f"{PREFIX}([A-Z_]+)", str(caught.value))) - {name.upper()}
    assert meant <= {one.upper() for one in variables()}
    assert str(caught.value).endswith(f"{gone()[name.upper()]}.")


def test_a_name_that_went_is_not_used_again() -> None:
    assert not {name.lower() for name in gone()} & {*variables()}


def test_no_text_names_a_variable_that_went() -> None:
    sources = Path(trt_responses.__file__).parent.rglob("*.py")
    went = re.compile(f"{PREFIX}({'|'.join(gone())})\\b")
    assert not [path.name for path in sources if went.search(path.read_text())]


def test_the_list_has_every_setting_and_the_folder_that_declares_it() -> None:
    assert [one.name for one in listed()] == [*variables()]
    owners = {name: group.__module__ for group in whole().__mro__ for name in annotated(group)}
    for one in listed():
        assert one.folder in (
            "",
            owners[one.name].removeprefix("trt_responses.")[: -len(".settings")],
        )


def annotated(group: type) -> list[str]:
    return [*vars(group).get("__annotations__", ())]


def test_a_group_that_is_not_listed_is_settable_under_its_own_title() -> None:
    class Parrot(SettingGroup):
        """A parrot."""

        parrot_s: Seconds = Field(1.0, description="Seconds until it answers.")

    class More(Settings, Parrot):
        """All settings, and the parrot's."""

    assert [*settable(More)][-1] == ("parrot_s", "A parrot")
    assert Parrot.of(More(parrot_s="2", port="1")).parrot_s == 2
    with pytest.raises(AssertionError):
        Parrot.of(Settings())


def test_a_setting_that_two_groups_declare_is_refused_by_name() -> None:
    class Parrot(SettingGroup):
        """A parrot."""

        port: Seconds = Field(1.0, description="The parrot's own.")

    with pytest.raises(StartupError, match=r"'port'.*settings\.core and in .*test_settings"):
        check_apart([CoreSettings, Parrot])


def test_a_setting_whose_folder_is_missing_is_refused_by_name() -> None:
    class Core(Settings):
        """What is left when every folder is gone."""

    with pytest.raises(StartupError, match=r"STORE_KEYS: features\.encryption is not installed"):
        Core(**{"store_keys": "keys"})
    with pytest.raises(StartupError, match=r"STORE_KEYS: features\.encryption is not installed"):
        Core.from_environment({"TRT_RESPONSES_STORE_KEYS": "keys"})
    assert Core(port=1).port == 1
