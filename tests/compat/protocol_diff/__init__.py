"""Conversations with a broker, and what Apache Kafka 4.3.1 answered to them: the differences are the findings.

`cases` holds the conversations as data, `kafka-4.3.1.json` Kafka's answers, `engine` runs a case, `plain` compares,
`comparison` runs many and reads which differences docs/compatibility.md lists.
`python -m tests.compat.protocol_diff` is the command.

Rule: nothing here shares code with the broker. The codec reads Kafka's own message definitions out of the kafka-clients
jar, so what both sides misunderstand alike cannot pass.
"""
