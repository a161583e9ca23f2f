"""Answers in one piece: what is on the wire."""

from __future__ import annotations

import msgspec
import pytest

from millrace.runtime.answers import Json, error_json


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (Json(b"{}"), "HTTP/1.1 200 OK"),
        (Json(b'{"a":1}', 503, {"Retry-After": "5"}), "HTTP/1.1 503 Service Unavailable"),
        (error_json("too much", 429, {"Retry-After": "1"}), "HTTP/1.1 429 Too Many Requests"),
    ],
)
def test_an_answer_is_whole(answer: Json, first: str) -> None:
    """Head and body come together: status, the answer's headers, those of the connection, type, length and date."""
    head, _, body = answer.sent({"Vary": "Origin"}).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ") for line in lines)
    assert (status, body) == (first, answer.body)
    assert headers.pop("Date").endswith(" GMT")
    length = {"Content-Type": "application/json", "Content-Length": str(len(answer.body))}
    assert headers == {**answer.headers, "Vary": "Origin", **length}


def test_the_error_body() -> None:
    """An error is an object with one field, the message."""
    assert msgspec.json.decode(error_json("no", 400).body) == {"error": "no"}
