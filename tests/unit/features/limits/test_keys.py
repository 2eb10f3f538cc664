"""What a file of keys may say, and whose a key is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from trt_responses.features.limits.keys import (
    Key,
    KeyFault,
    KeyRing,
    OwnerLimits,
    digest_of,
    new_key,
    read_keys,
    write_keys,
)

NOW = datetime(2026, 2, 3, tzinfo=UTC)


def key(owner: str, secret: str, **more: object) -> Key:
    given = {"owner": owner, "name": secret, "sha256": digest_of(secret)}
    return Key.model_validate(given | more)


def ring(*keys: Key, **owners: str) -> KeyRing:
    made = KeyRing(owners, from_file=bool(keys), clock_s=NOW.timestamp)
    made.hold(keys)
    return made


def test_what_is_written_is_read_again() -> None:
    keys = (key("ann", "a1"), key("ann", "a2", expires=NOW), key("bob", "b1", admin=True))
    assert read_keys(write_keys(keys)) == keys
    assert read_keys(write_keys(())) == ()


def test_a_key_is_of_256_random_bits_and_no_two_are_equal() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == len("trt_") + 43 for each in made), "32 bytes as base64"


GOOD = {"owner": "ann", "name": "a", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *[("", "JSON"), ("[]", "object"), ("{}", "keys"), ('{"keys": {}}', "keys")],
        *[
            (json.dumps({"keys": [GOOD | wrong]}), next(iter(wrong)))
            for wrong in (
                {"owner": ""},
                {"owner": "a/b"},
                {"name": 'a"b'},
                {"name": "a\nb"},
                {"sha256": "0" * 63},
                {"sha256": "G" * 64},
                {"admin": "perhaps"},
                {"expires": "2026-01-01T00:00:00"},
                {"expires": "soon"},
                {"limit": 3},
            )
        ],
        (json.dumps({"keys": [GOOD, GOOD | {"sha256": "1" * 64}]}), "same name"),
        (json.dumps({"keys": [GOOD, GOOD | {"name": "b"}]}), "same sha256"),
        (json.dumps({"keys": [GOOD], "more": 1}), "more"),
    ],
)
def test_a_file_that_is_wrong_anywhere_is_refused_whole(text: str, named: str) -> None:
    with pytest.raises(KeyFault, match=named):
        read_keys(text.encode())


def test_a_key_that_was_pasted_in_place_of_its_digest_is_not_repeated() -> None:
    secret = new_key()
    with pytest.raises(KeyFault) as caught:
        read_keys(json.dumps({"keys": [GOOD | {"sha256": secret}]}).encode())
    assert secret not in str(caught.value)


def test_several_keys_speak_for_one_owner_which_is_how_keys_are_exchanged() -> None:
    both = ring(key("ann", "old"), key("ann", "new"), bob="bob's owner")
    assert both.owner_of("old") == both.owner_of("new") == "ann"
    assert both.owner_of("bob") == "bob's owner", "the settings' keys stay"
    both.hold([key("ann", "new")])
    assert both.owner_of("old") is None
    assert both.owner_of("new") == "ann"


def test_a_key_that_has_expired_is_none() -> None:
    second = timedelta(seconds=1)
    keys = ring(
        key("ann", "late", expires=NOW + second), key("ann", "over", expires=NOW, admin=True)
    )
    assert keys.owner_of("late") == "ann"
    assert keys.owner_of("over") is None
    assert keys.admin_of("over") is None


def test_only_keys_of_the_file_that_say_so_are_admins() -> None:
    keys = ring(key("ann", "plain"), key("ann", "chief", admin=True), given="ann")
    assert keys.admin_of("chief") == "ann/chief"
    assert not any(keys.admin_of(other) for other in ("plain", "given", "", digest_of("chief")))


def test_a_digest_is_no_key() -> None:
    assert ring(key("ann", "a")).owner_of(digest_of("a")) is None


def test_a_file_asks_everybody_for_a_key_also_when_it_names_none() -> None:
    assert not KeyRing().required
    assert KeyRing({"k": "ann"}).required
    assert KeyRing(from_file=True).required


def test_a_file_cannot_give_a_key_of_the_settings_to_another_owner() -> None:
    keys = ring(key("ann", "a"), b="bob")
    with pytest.raises(KeyFault, match="mallory/b"):
        keys.hold([key("mallory", "b")])
    assert keys.owner_of("a") == "ann", "nothing has changed"
    assert keys.owner_of("b") == "bob"
    keys.hold([key("bob", "b")])
    assert keys.owner_of("b") == "bob"


def test_limits_of_an_owner_are_the_largest_of_its_keys_else_the_settings() -> None:
    usual = OwnerLimits(running=2, waiting=5)
    made = KeyRing(from_file=True, clock_s=NOW.timestamp, limits=usual)
    made.hold(
        (
            key("ann", "old", limits=OwnerLimits(running=4, tokens_per_minute=10)),
            key("ann", "new", limits=OwnerLimits(running=3, tokens_per_minute=20)),
            key("ann", "gone", limits=OwnerLimits(running=99), expires=NOW),
            key("bob", "b"),
        )
    )
    assert made.limits_of("ann") == OwnerLimits(running=4, waiting=5, tokens_per_minute=20)
    assert made.limits_of("bob") == usual
    made.hold(())
    assert made.limits_of("ann") == usual
