"""`penstock run`: a broker in one process, with an embedded ledger, and an embedded store unless --store is given."""

from collections.abc import Mapping

from agent.cli.option_flags import with_option_flags
from agent.cli.serving.serve import serve
from agent.config.settings import CliCommand

HELP = "Run a broker in one process, with an embedded ledger and store."


def _run(config: str | None, values: Mapping[str, object]) -> None:
    serve(CliCommand.RUN, config, values)


run = with_option_flags(_run, is_cluster=False)
