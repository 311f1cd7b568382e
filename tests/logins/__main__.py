"""python -m tests.logins [--frames N] [--tls N] [--sockets N] [--seed N]

Sends drawn and mutated frames of clients without a password to the table of states, and flights of TLS to a session,
until one breaks a rule; then frames of both kinds over sockets to a running agent.
"""

import argparse
import sys

from tests.logins.sockets import SocketFault, attack
from tests.logins.sweep import LoginFault, LoginSweep
from tests.logins.tls_sweep import TlsFault, TlsSweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--tls", type=int, default=100_000, help="flights of TLS in this process")
    parser.add_argument("--sockets", type=int, default=0, help="frames over sockets to a running agent")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        if options.frames:
            print(LoginSweep(options.seed).run(options.frames), flush=True)
        if options.tls:
            print(TlsSweep(options.seed).run(options.tls), flush=True)
        if options.sockets:
            print(attack(options.sockets, options.seed), flush=True)
    except (LoginFault, TlsFault, SocketFault) as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
