"""The pages for operators lead to what there is, and show the commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click import Command, Context, Group

from millrace.cli import main
from millrace.system.reference import measures

ROOT = Path(__file__).parents[2]
PAGES = ("production.md", "runbooks.md", "reference-metrics.md", "reference-settings.md")
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
SERVICES = ("aggregator", "relayer", "notifier")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """Each link is to a file of the repository, and to a heading that it has."""
    page = ROOT / "docs" / name
    for target, anchor in LINK.findall(page.read_text()):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), (target, anchor)


@pytest.mark.parametrize("name", PAGES)
def test_files_of_deploy_exist(name: str) -> None:
    """Whatever a page names below deploy/ is there."""
    for named in re.findall(r"\bdeploy/[\w./@-]+\w", (ROOT / "docs" / name).read_text()):
        assert (ROOT / named).exists() or list(ROOT.glob(named + "*")), named


def test_commands_exist() -> None:
    """Each `millrace …` of the pages is a command, as far as words without dashes go."""
    found = 0
    for name in PAGES[:2]:
        for line in re.findall(r"\bmillrace ((?:relayer|policy) [a-z][\w-]*)", (ROOT / "docs" / name).read_text()):
            command: Command | None = main
            for word in line.split():
                assert isinstance(command, Group)
                command = command.get_command(Context(command), word)
                assert command is not None, line
            found += 1
    assert found >= 8


def test_metrics_exist() -> None:
    """Each metric that the pages name is one."""
    known = {name for declared in measures().values() for measure in declared for name in measure.series()}
    known |= {measure.name for declared in measures().values() for measure in declared}
    text = "".join((ROOT / "docs" / name).read_text() for name in PAGES[:2])
    named = set(re.findall(rf"`((?:{'|'.join(SERVICES)})_[a-z_]+)(?:\{{[^`]*\}})?`", text))
    assert len(named) > 20
    assert named - known == set()
