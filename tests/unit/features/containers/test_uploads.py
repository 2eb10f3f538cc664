"""The file in a form: which forms are read, and how much of one is looked at."""

from __future__ import annotations

import pytest

from trt_responses.errors import ApiError
from trt_responses.features.containers.files import uploaded
from trt_responses.features.forms.form import BOUNDARY_CHARACTERS, HEAD_BYTES, MOST_PARTS

FORM = "multipart/form-data; boundary=x"
NAME = "д" * 127
PIECES = "; filename*0=a; filename*1*=b; filename*=c"
OTHER = b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nnone\r\n'


def form(about: bytes, before: bytes = b"") -> bytes:
    return before + b"--x\r\n" + about + b"\r\n\r\na\r\n--y\r\n\r\nb\r\n--x--\r\n"


def named(more: str) -> bytes:
    return f'Content-Disposition: form-data; name="file"; {more}'.encode()


@pytest.mark.parametrize(
    "about",
    [
        named(f'filename="{NAME}"'),
        named(f"filename*=utf-8''{'%D0%B4' * 127}"),
        b"Content-Type: text/plain; charset=utf-8\r\n" + named(f'filename="{NAME}"'),
    ],
    ids=["as it is", "in percents", "behind another header"],
)
@pytest.mark.parametrize("before", [b"", b"words before\r\n", OTHER * (MOST_PARTS - 1)])
def test_a_file_is_found_with_the_longest_name_there_is(about: bytes, before: bytes) -> None:
    assert uploaded(FORM, form(about, before)) == (NAME, b"a\r\n--y\r\n\r\nb")


@pytest.mark.parametrize(
    ("kind", "body", "status", "code"),
    [
        (FORM, form(named("filename=f"), OTHER * MOST_PARTS), 400, "missing_required_parameter"),
        (FORM, form(named("filename=f"), form(named("filename=f"))[:-7]), 400, "invalid_value"),
        (FORM, form(named("a=" + "b" * HEAD_BYTES)), 400, "invalid_value"),
        (FORM, form(named(PIECES)), 400, "invalid_value"),
        (FORM + PIECES, form(named("filename=f")), 415, "unsupported_content_type"),
        (FORM, b"--x\r\n" + named("filename=f"), 400, "missing_required_parameter"),
        (FORM, b"", 400, "missing_required_parameter"),
        (FORM[:-1] + "x" * (BOUNDARY_CHARACTERS + 1), b"", 415, "unsupported_content_type"),
        (FORM + ";" * HEAD_BYTES, form(named("filename=f")), 415, "unsupported_content_type"),
        ("multipart/form-data", b"", 415, "unsupported_content_type"),
        ("text/plain; boundary=x", b"", 415, "unsupported_content_type"),
        ("application/json", b"{}", 415, "unsupported_content_type"),
    ],
)
def test_what_is_no_form_with_a_file_is_refused(
    kind: str, body: bytes, status: int, code: str
) -> None:
    with pytest.raises(ApiError) as refused:
        uploaded(kind, body)
    assert (refused.value.status, refused.value.code) == (status, code)
