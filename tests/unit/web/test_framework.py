"""Which routes the apps of a process share."""

from __future__ import annotations

from trt_responses.web.framework import ColdRoute, hot_route


class Endpoints:
    async def one(self) -> None: ...

    async def other(self) -> None: ...


async def described() -> None: ...


async def app(*_: object) -> None: ...


async def another(*_: object) -> None: ...


def test_a_method_of_two_objects_is_one_route() -> None:
    first, second = Endpoints(), Endpoints()
    made = ColdRoute("/x", first.one, methods=["GET"])
    assert ColdRoute("/x", second.one, methods=["GET"]) is made
    assert ColdRoute("/x", second.other, methods=["GET"]) is not made
    assert ColdRoute("/y", second.one, methods=["GET"]) is not made
    assert ColdRoute("/x", second.one, methods=["POST"]) is not made


def test_a_function_which_may_know_its_app_is_not_kept() -> None:
    assert ColdRoute("/x", described) is not ColdRoute("/x", described)


def test_a_hot_route_shares_its_description_and_not_its_app() -> None:
    first, second = (hot_route("/x", described, made) for made in (app, another))
    assert first.dependant is second.dependant
    assert (first.app, second.app) == (app, another)
