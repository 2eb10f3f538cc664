"""Forms with a file, as clients upload them."""

from __future__ import annotations

FORM = "multipart/form-data; boundary=edge"


def form(data: bytes, name: str = "notes.txt", **fields: str) -> bytes:
    parts = [
        f'--edge\r\ncontent-disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in ({"purpose": "user_data"} | fields).items()
    ]
    head = f'--edge\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return "".join((*parts, head)).encode() + data + b"\r\n--edge--\r\n"
