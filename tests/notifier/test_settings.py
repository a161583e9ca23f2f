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
    assert settings.node_secrets["first"].reveal() == "s1"
    assert settings == NotifierSettings(
        finalized_wait=2.5,
        node_secrets=settings.node_secrets,
        node_urls=("ws://a:1", "ws://b:2"),
        data_dir=Path("/var/lib/millrace"),
        port=0,
    )


def test_an_empty_secret_of_a_node_is_refused() -> None:
    """With it everybody who sends no header would be that node."""
    with pytest.raises(SettingsError, match="node_secrets: 'second' has an empty secret"):
        load("notifier", NotifierSettings, env={}, overrides={"node_secrets": '{"first": "s1", "second": ""}'})


@pytest.mark.parametrize(
    ("field", "text"),
    [("port", "70000"), ("max_nodes", "0"), ("finalized_wait", "-1"), ("window_bytes", "x"), ("nonsense", "1")],
)
def test_refusals(field: str, text: str) -> None:
    """A value that cannot work, or an unknown name, is refused by name."""
    with pytest.raises(SettingsError, match=field):
        load("notifier", NotifierSettings, env={}, overrides={field: text})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"service_bus_topics": '{"Events": "x"}'}, "no kind 'Events'"),
        ({"service_bus_topics": '{"Event": ""}'}, "needs a name"),
        ({"service_bus_topics": "{}"}, "one there must be"),
        ({"service_bus_connection": "Endpoint=sb://k3y", "service_bus_connection_file": "f"}, "not both"),
    ],
)
def test_service_bus_refusals(overrides: dict[str, str], words: str) -> None:
    """Settings of the service bus that contradict themselves are refused, and the connection string is not shown."""
    with pytest.raises(SettingsError, match=words) as refusal:
        load("notifier", NotifierSettings, env={}, overrides=overrides)
    assert "k3y" not in str(refusal.value)


def test_service_bus_environment() -> None:
    """The connection string may come from the environment; a look at the settings does not show it."""
    settings = load(
        "notifier", NotifierSettings, env={"MILLRACE_NOTIFIER__SERVICE_BUS_CONNECTION": "Endpoint=sb://k3y"}
    )
    assert settings.reveal_service_bus_connection() == "Endpoint=sb://k3y"
    assert "k3y" not in repr(settings) + str(settings)
