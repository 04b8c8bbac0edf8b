"""docs/cli.md says what --help says."""

from tools.cli_reference import TARGET, reference


def test_the_reference_is_what_help_says():
    assert TARGET.read_text(encoding="utf-8") == reference(), "run: make docs"
