"""Writes the documents of the services' interfaces to `spec/`: what the types of this client are generated from.

Run it in the repository's environment, and `npm run generate` afterwards, when an interface has changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millrace.aggregator import openapi as aggregator
from millrace.aggregator.settings import AggregatorSettings
from millrace.relayer.gateway import openapi as relayer

SPEC = Path(__file__).parent.parent / "spec"


def documents() -> dict[str, Any]:
    """Each document by the name of its file."""
    return {
        "aggregator.openapi.json": aggregator.document(AggregatorSettings()),
        "relayer.openapi.json": relayer.openapi(),
        "relayer.asyncapi.json": relayer.asyncapi(),
    }


def text(document: Any) -> str:
    """What a file holds."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, document in documents().items():
        (SPEC / name).write_text(text(document))
