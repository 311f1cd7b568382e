"""Dependencies between transactions as a graph, and cycles in it."""
