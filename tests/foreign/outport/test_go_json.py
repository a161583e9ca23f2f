"""The committed JSON frames against the network's own code."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VECTORS = json.loads((HERE.parents[1] / "vectors" / "outport_go_json.json").read_text())["messages"]


@pytest.mark.foreign
def test_go_writes_the_committed_frames(tmp_path: Path) -> None:
    """Go decodes each payload from protobuf and writes the very frame that the other tests read."""
    go = shutil.which("go")
    assert go, "Go is needed, and the module proxy the first time"
    messages = [{"topic": vector["topic"], "payload": vector["protobuf"]} for vector in VECTORS]
    program = tmp_path / "outportjson"
    subprocess.run([go, "build", "-o", program, "."], cwd=HERE, check=True)
    done = subprocess.run([program], input=json.dumps(messages), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [vector["json"] for vector in VECTORS]
