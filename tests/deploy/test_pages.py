"""Pages lead to what there is; those for operators show the commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deploy.operated import Operated
from millrace.cli import main
from millrace.cli.policy import policy
from millrace.relayer.commands import VERBS
from millrace.system.reference import measures

ROOT = Path(__file__).parents[2]
PAGES = ("production.md", "runbooks.md", "reference-metrics.md", "reference-settings.md")
EVERY = sorted(
    path.relative_to(ROOT).as_posix()
    for glob in ("*.md", "docs/**/*.md", "clients/*/README.md")
    for path in ROOT.glob(glob)
)
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
SERVICES = ("aggregator", "relayer", "notifier")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", EVERY)
def test_links_lead_somewhere(name: str) -> None:
    """Each link is to a file of the repository, and to a heading that it has."""
    page = ROOT / name
    for target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), (target, anchor)


@pytest.mark.parametrize("name", PAGES)
def test_files_of_deploy_exist(name: str) -> None:
    """Whatever a page names below deploy/ is there."""
    for named in re.findall(r"\bdeploy/[\w./@-]+\w", (ROOT / "docs" / name).read_text()):
        assert (ROOT / named).exists() or list(ROOT.glob(named + "*")), named


@pytest.mark.parametrize("name", EVERY)
def test_nobody_is_sent_to_an_index(name: str) -> None:
    """No page installs these packages by name alone: the name `millrace` of PyPI is another project's."""
    by_name = r"\b(?:pip|tool) install (?:\S+ )*['\"]?millrace(?:-client)?(?:\[.*?\])?['\"]?(?:\s|$)"
    assert re.findall(by_name, (ROOT / name).read_text(), re.MULTILINE) == []


def commands(text: str) -> Iterator[str]:
    """The commands in a page's code: lines of blocks without comments, and what stands in words between backquotes."""
    block = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
    lines = [line.partition("#")[0] for code in block.findall(text) for line in code.splitlines()]
    spans = re.findall(r"`([^`]+)`", block.sub("", text))
    for line in (*lines, *(" ".join(span.split()) for span in spans)):
        yield from (part.strip() for part in line.split("&&"))


@pytest.mark.parametrize("name", PAGES[:2])
def test_verbs_are_performed_as_the_relayer(name: str) -> None:
    """No page has a verb by the bare program: that one would be of no settings, in whatever folder it is called."""
    for line in commands((ROOT / "docs" / name).read_text()):
        bare = re.match(r"(?:runuser .*|/opt/millrace/bin/)?millrace (?:relayer|policy) (.*)", line)
        assert bare is None or bare[1] == "--config /etc/millrace/millrace.toml --show-settings", line


def noted(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """Verbs do nothing from here on but leave the settings they are called with in this list."""
    done: list[Path | None] = []

    def note(**given: Any) -> None:
        context = click.get_current_context()
        done.append(given.get("config") or (context.obj and context.obj.config))

    for verb in (*VERBS, *policy.commands.values()):
        monkeypatch.setattr(verb, "callback", note)
    for kind in (click.Path, click.File):  # the files of an example are not there
        monkeypatch.setattr(kind, "convert", lambda _, value, *rest: Path(value))
    return done


@pytest.mark.parametrize(("name", "least"), [("production.md", 9), ("runbooks.md", 7)])
def test_verbs_are_taken(name: str, least: int, operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `millrace-relayer …` of a page ends at a verb that takes its arguments, with the relayer's settings."""
    done = noted(monkeypatch)
    for line in commands((ROOT / "docs" / name).read_text()):
        if line.startswith("millrace-relayer "):
            words = shlex.split(line.partition(" <")[0])[1:]
            result = CliRunner().invoke(main, operated(*words).words)
            assert result.exit_code == 0, (line, result.output)
    assert len(done) >= least
    assert set(done) == {operated.settings}


def test_the_relayers_page_shows_verbs_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb with arguments on the page for who operates a relayer takes these."""
    done = noted(monkeypatch)
    verbs = "|".join(str(verb.name) for verb in (*VERBS, *policy.commands.values()))
    for line in commands((ROOT / "docs" / "relayer-operating.md").read_text()):
        if re.match(rf"(\$ )?millrace (relayer|policy) ({verbs}) .", line):
            result = CliRunner().invoke(main, shlex.split(line.removeprefix("$ "))[1:])
            assert result.exit_code == 0, (line, result.output)
    assert len(done) >= 14


def test_settings_are_shown_as_the_page_says() -> None:
    """The step that looks at the settings prints those of the sample."""
    text = (ROOT / "docs" / "production.md").read_text()
    (line,) = (line for line in commands(text) if line.endswith("--show-settings"))
    words = shlex.split(line.replace("/etc/millrace/millrace.toml", str(ROOT / "deploy/millrace.toml")))
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0
    assert "policy_file = '/etc/millrace/policy.toml'" in result.output


def test_metrics_exist() -> None:
    """Each metric that a page names is one; settings that begin like it end in `_url`."""
    known = {name for declared in measures().values() for measure in declared for name in measure.series()}
    known |= {measure.name for declared in measures().values() for measure in declared}
    text = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md") if path.name != "reference-settings.md")
    named = set(re.findall(rf"`((?:{'|'.join(SERVICES)})_[a-z_]+)(?:\{{[^`]*\}})?`", text))
    assert len(named) > 20
    assert {name for name in named - known if not name.endswith("_url")} == set()
