"""What `docs/quickstart.md` needs for Spark: the Python packages of the group test, and a Java runtime.

python3 -m tools.setup_spark
"""

from tools.environment import sync
from tools.java_runtime import ensure_java
from tools.steps import main


def _main() -> None:
    sync(["test"])
    ensure_java()


if __name__ == "__main__":
    main(_main)
