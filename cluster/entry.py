"""Where the installed command begins. It imports next to nothing itself, so that Ctrl-C is one line from the start."""

import sys


def main() -> None:
    """Entry point of the installed command."""
    try:
        from cluster.cli import main as command_line
    except KeyboardInterrupt:  # the half second of imports: there is nothing yet to be kept
        print("warpsmith: interrupted", file=sys.stderr)
        sys.exit(130)
    command_line()
