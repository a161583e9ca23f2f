"""Settings come from a file, the environment and flags, and refuse what cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.notifier.settings import NotifierSettings
from millrace.runtime.settings import SettingsError, load


def test_every_source(tmp_path: Path) -> None:
    """A TOML table, the environment and flags reach every kind of field."""
    file = tmp_path / "millrace.toml"
    file.write_text('[notifier]\nfinalized_wait = 2.5\n[notifier.node_secrets]\nfirst = "s1"\n')
    settings = load(
        "notifier",
        NotifierSettings,
        file=file,
        env={"MILLRACE_NOTIFIER__NODE_URLS": '["ws://a:1", "ws://b:2"]'},
        overrides={"data_dir": "/var/lib/millrace", "port": "0"},
    )
    assert settings == NotifierSettings(
        finalized_wait=2.5,
        node_secrets={"first": "s1"},
        node_urls=("ws://a:1", "ws://b:2"),
        data_dir=Path("/var/lib/millrace"),
        port=0,
    )


@pytest.mark.parametrize(
    ("field", "text"),
    [("port", "70000"), ("max_nodes", "0"), ("finalized_wait", "-1"), ("window_bytes", "x"), ("nonsense", "1")],
)
def test_refusals(field: str, text: str) -> None:
    """A value that cannot work, or an unknown name, is refused by name."""
    with pytest.raises(SettingsError, match=field):
        load("notifier", NotifierSettings, env={}, overrides={field: text})
