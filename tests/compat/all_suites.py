"""The suites, in the order in which they are run and told of: the quickest first."""

from tests.compat.kafka_java.suite import KAFKA_JAVA
from tests.compat.kafka_python.suite import KAFKA_PYTHON
from tests.compat.librdkafka.suite import LIBRDKAFKA
from tests.compat.protocol_diff.suite import PROTOCOL_DIFF

SUITES = (PROTOCOL_DIFF, KAFKA_PYTHON, KAFKA_JAVA, LIBRDKAFKA)
