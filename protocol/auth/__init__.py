"""Who a client is, and what it may ask for: Kafka's words and the server's side of authentication. No I/O.

In: bytes of a client, credentials that the caller looked up, random bytes that the caller drew. Out: answers, and the
principal of a connection.
"""
