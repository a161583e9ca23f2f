"""What the TypeScript client's types are generated from is what the services say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"


def test_its_documents_are_those_of_the_services() -> None:
    """`spec/` holds the documents as they are made now; where not: scripts/documents.py, then `npm run generate`."""
    spec = importlib.util.spec_from_file_location("documents", CLIENT / "scripts" / "documents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = {name: module.text(document) for name, document in module.documents().items()}
    kept = {file.name: file.read_text() for file in (CLIENT / "spec").iterdir()}
    assert kept == made
