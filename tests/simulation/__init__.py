"""Deterministic simulation: a whole cluster, its clients and its faults in one process, repeatable from a seed.

Rule: agents run their real code (`agent.broker.Broker` and the request handlers); what is simulated is what lies
outside of them: time, the order in which things happen, the network, the ledger's server, the bucket and the clients.

    make sim SEED=7         one seed again, with its trace where it failed
    make sim SEEDS=1..200   many
    make sim-deep           thousands, on all cores

`plan` says what a seed draws, `world` runs it, `auditor` judges it, `mutations` proves that it would find what it is
for.
"""
