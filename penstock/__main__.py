"""The command `penstock`, also as `python -m penstock`."""

from penstock.application import find_packages


def main() -> None:
    """The entry point of the command. It does not return: the process ends with the command's exit status."""
    find_packages()
    from agent.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
