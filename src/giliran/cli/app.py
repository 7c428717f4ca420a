"""The group of commands."""

from __future__ import annotations

import click

from giliran.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="giliran")
def giliran() -> None:
    """Give worker-queue jobs their turn: one at a time per resource, one effect per request."""


giliran.add_command(demo)
