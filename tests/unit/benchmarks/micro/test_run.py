"""JSON lines become columns."""

from benchmarks.micro.run import tabulate


def test_rows_with_the_same_keys_share_a_heading() -> None:
    output = '{"what": "codec", "us": 1.5}\n{"what": "apply", "us": 20}\n{"what": "load", "s": 3}\n'
    assert tabulate(output) == "what    us\ncodec  1.5\napply   20\nwhat  s\nload  3"


def test_a_row_that_lacks_some_keys_shares_the_heading() -> None:
    assert tabulate('{"n": 1}\n{"n": 2, "us": 20}\n{"n": 3}\n') == "n  us\n1   -\n2  20\n3   -"


def test_other_lines_stay_as_they_are() -> None:
    assert tabulate("kernels ready\n  encode  2.0\n[1]") == "kernels ready\n  encode  2.0\n[1]"
