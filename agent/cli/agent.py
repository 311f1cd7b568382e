"""`penstock agent`: one agent of a cluster."""

from collections.abc import Mapping

from agent.cli.option_flags import with_option_flags
from agent.cli.serving.serve import serve
from agent.config.settings import CliCommand

HELP = "Run one agent of the cluster that --ledger and --store name."


def _agent(config: str | None, values: Mapping[str, object]) -> None:
    serve(CliCommand.AGENT, config, values)


agent = with_option_flags(_agent, is_cluster=True)
