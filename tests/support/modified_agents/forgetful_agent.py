"""`penstock` that remembers one batch of a producer in a partition instead of ten. Run it instead of `penstock`.

So repeats of what a client has in flight are older than what is remembered. With ten batches that happens when a hint
moves away from an agent that stands still.
"""

from txn import producer_state

producer_state.BATCHES_REMEMBERED = 1

if __name__ == "__main__":
    from agent.cli.main import main

    main()
