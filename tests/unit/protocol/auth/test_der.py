"""A reader of DER."""

import pytest

from protocol.auth.der import InvalidDer, elements, object_identifier, only_element


def test_elements_follow_each_other() -> None:
    data = bytes.fromhex("0201050481" + "80") + bytes(128)
    assert [(tag, len(contents), len(encoding)) for tag, contents, encoding in elements(data)] == [
        (2, 1, 3),
        (4, 128, 131),
    ]


@pytest.mark.parametrize("text", ["02", "0205ff", "0480", "04850000000001ff", "0482ff"])
def test_what_is_cut_off_or_indefinite_is_rejected(text: str) -> None:
    with pytest.raises(InvalidDer):
        list(elements(bytes.fromhex(text)))


def test_only_one_element_of_the_tag_is_taken() -> None:
    assert only_element(bytes.fromhex("020105"), 2).contents == b"\x05"
    for text in ("020105020105", "040105", ""):
        with pytest.raises(InvalidDer):
            only_element(bytes.fromhex(text), 2)


@pytest.mark.parametrize(
    ("text", "dotted"),
    [("550403", "2.5.4.3"), ("2b06", "1.3.6"), ("883705", "2.999.5"), ("0992268993f22c640101", None), ("00", "0.0")],
)
def test_object_identifiers_are_dotted(text: str, dotted: str | None) -> None:
    assert object_identifier(bytes.fromhex(text)) == (dotted or "0.9.2342.19200300.100.1.1")


@pytest.mark.parametrize("text", ["", "5584"])
def test_an_object_identifier_that_is_cut_off_is_rejected(text: str) -> None:
    with pytest.raises(InvalidDer):
        object_identifier(bytes.fromhex(text))
