"""The page to try the interface in is whole, asks nobody else, and carries its licences."""

from __future__ import annotations

import re

import pytest

from millrace.aggregator.page import FILES
from servers.aggregator_service import Service


@pytest.mark.parametrize("path", FILES)
async def test_every_file_is_served(service: Service, path: str) -> None:
    """With its type, a policy that lets nothing in from elsewhere, and 304 to who has it."""
    async with service.session.get(service.base + path) as answer:
        assert answer.status == 200
        assert answer.content_type == FILES[path][1]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        tag = answer.headers["ETag"]
        assert await answer.read()
    async with service.session.get(service.base + path, headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304


async def test_the_page_loads_nothing_but_its_own_files(service: Service) -> None:
    """Everything it names is here, under names that hold behind a prefix too, and no script is inline."""
    async with service.session.get(service.base + "/docs") as answer:
        page = await answer.text()
    named = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert {f"/{name}" for name in named if not name.startswith("data:")} <= {*FILES, "/openapi.json"}
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == ["", ""]


async def test_what_is_no_file_of_the_page_is_not_there(service: Service) -> None:
    """Only the files that are named are served."""
    assert (await service.get("/docs/__init__.py"))[0] == 404
