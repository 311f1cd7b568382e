"""The suites, in the order in which they are run and told of: the quickest first."""

from tests.compat.franz_go.suite import FRANZ_GO
from tests.compat.kafka_java.suite import KAFKA_JAVA, KAFKA_JAVA_SECURED
from tests.compat.kafka_python.suite import KAFKA_PYTHON, KAFKA_PYTHON_SECURED
from tests.compat.librdkafka.suite import LIBRDKAFKA, LIBRDKAFKA_SECURED
from tests.compat.protocol_diff.suite import PROTOCOL_DIFF

SUITES = (
    PROTOCOL_DIFF,
    KAFKA_PYTHON,
    KAFKA_PYTHON_SECURED,
    FRANZ_GO,
    KAFKA_JAVA,
    KAFKA_JAVA_SECURED,
    LIBRDKAFKA,
    LIBRDKAFKA_SECURED,
)
