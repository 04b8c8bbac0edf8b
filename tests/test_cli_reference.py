"""docs/cli.md says what --help says."""

import subprocess
import sys

from tools.cli_reference import TARGET


def test_the_reference_is_what_help_says():
    # A process of its own: commands remember the help option that they first showed.
    code = "from tools.cli_reference import reference; print(reference(), end='')"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=TARGET.parent.parent
    )
    assert TARGET.read_text(encoding="utf-8") == shown.stdout.decode(), "run: make docs"
