"""What an agent shows of its state, transactions, tables and objects, as plain values for JSON. Changes nothing."""
