"""Views of an agent's state, transactions, tables and objects, as plain values for JSON. Changes nothing."""
