"""What the command lines of the tools have in common: wrong use is one line on stderr and exit status 2, before anything runs."""
import argparse
import pathlib
import sys

from output_files import refusal


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names only: a tool that says how it was called knows them by these."""

    def __init__(self, **more):
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **more})

    def error(self, message):
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def at_least(least: int):
    """A type for argparse."""
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"takes a number from {least} on, got '{text}'")
        return number
    return parse


def output_file(text: str) -> pathlib.Path:
    """A type for argparse: a file that can be written when there is something to write."""
    if reason := refusal(text):
        raise argparse.ArgumentTypeError(reason)
    return pathlib.Path(text)
