"""`make compat`: what tells how far Penstock answers as Apache Kafka does, with its report.

python -m tests.compat [PYTEST OPTIONS]
"""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), "-s", "-q", "-m", "slow or not slow", *sys.argv[1:]]))
