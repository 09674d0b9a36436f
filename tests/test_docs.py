"""The documentation site is built strictly, and knows every key of the configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.config import known_keys

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_has_every_key(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stdout + built.stderr
    config = (tmp_path / "site" / "reference" / "config" / "index.html").read_text()
    shown = set(re.findall(r"<td><code>([a-z_.0-9]+)</code></td>", config))
    assert set(known_keys()) <= shown
    assert "Judges side by side; their timing takes turns" in config
    python = (tmp_path / "site" / "reference" / "python" / "index.html").read_text()
    assert 'id="archive.store.Archive.add_many"' in python
    # Everything is on the site itself: it can be read without network, but for the pictures' script.
    assert not re.findall(r'<(?:link|img)[^>]+(?:href|src)="https?://(?!github)[^"]+\.(?:css|png|svg|woff2?)"', config)


def test_commands_in_the_documentation_are_there() -> None:
    from typer.main import get_command

    from cluster.cli import app

    top = get_command(app)
    for page in ROOT.glob("docs/*.md"):
        for line in re.findall(r"`(?:\.venv/bin/)?warpsmith ([^`\n]+)`", page.read_text()):
            words = line.split()
            command = getattr(top, "commands", {}).get(words[0])
            assert command is not None or words[0].startswith("-"), f"{page.name}: warpsmith {line}"
            group = getattr(command, "commands", None)
            assert group is None or len(words) == 1 or words[1] in group, f"{page.name}: warpsmith {line}"
