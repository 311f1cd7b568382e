"""Names of certificates as Java writes them. The texts are the answers of X500Principal.getName() of OpenJDK 21."""

import ssl
from pathlib import Path

import pytest

from protocol.auth.der import InvalidDer
from protocol.auth.distinguished_names import name_text, subject_text
from tests.support.certificates import TestAuthority

JAVA = [
    (
        "30819e310b3009060355040613024445310f300d06035504080c0642617965726e3111300f06035504070c084dc3bc6e6368656e311630"
        "14060355040a0c0d4578616d706c652c20496e632e310e300c060355040b0c05612b623d63310a300806035504090c017831133011060a"
        "0992268993f22c64011916036f726731123010060a0992268993f22c6401010c027531310e300c06035504030c05616c696365",
        r"CN=alice,UID=u1,DC=org,STREET=x,OU=a\+b\=c,O=Example\, Inc.,L=München,ST=Bayern,C=DE",
    ),
    (
        "302d311c301a06092a864886f70d010901160d61406578616d706c652e6f7267310d300b06035504030c046d61696c",
        "CN=mail,1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267",
    ),
    (
        "3061310e300c06035504030c05206c656164310f300d06035504030c06747261696c20310e300c06035504030c05236861736831143012"
        "06035504030c0b6122625c633c643e653b66310d300b06035504030c04610d620d3109300706035504030c00",
        'CN=,CN=a\rb\\\r,CN=a\\"b\\\\c\\<d\\>e\\;f,CN=\\#hash,CN=trail\\ ,CN=\\ lead',
    ),
    (
        "302b311d300c06035504030c056d756c7469300d060355040b0c0676616c756564310a3008060355040a0c016f",
        "O=o,CN=multi+OU=valued",
    ),
    (
        "3056310c300a06035504031403743631310f300d06035504031e060062006d00703119301706035504031c10000000750000006e000000"
        "6900000076310c300a06035504031a03766973310c300a060355040312036e756d",
        r"CN=#12036e756d,CN=#1a03766973,CN=#1c10000000750000006e0000006900000076,CN=\00b\00m\00p,CN=t61",
    ),
    (
        "304c310c300a06035504051303313233310a300806035504040c0173310a3008060355040c0c0174310a300806032a03040c017a310a30"
        "0806038837050c0171310c300a06035504030c03007800",
        r"CN=\00x\00,2.999.5=#0c0171,1.2.3.4=#0c017a,2.5.4.12=#0c0174,2.5.4.4=#0c0173,2.5.4.5=#1303313233",
    ),
    (
        "30333113301106035504030c0af09f988020656d6f6a69310c300a06035504030c03202020310e300c06035504030c052061206220",
        "CN=\\ a b\\ ,CN=\\ \\ \\ ,CN=\U0001f600 emoji",
    ),
    ("3000", ""),
    ("300e310c300a06035504031303c0ffee", "CN=\ufffd\ufffd\ufffd"),
]


@pytest.mark.parametrize(("encoded", "text"), JAVA, ids=[text[:20] for _, text in JAVA])
def test_a_name_is_written_as_java_writes_it(encoded: str, text: str) -> None:
    assert name_text(bytes.fromhex(encoded)) == text


@pytest.mark.parametrize("encoded", ["", "3002", "30023000", "3004310230000", "30043102020100", "3006310430020500"])
def test_bytes_that_are_no_name_are_rejected(encoded: str) -> None:
    with pytest.raises(InvalidDer):
        name_text(bytes.fromhex(encoded[: len(encoded) // 2 * 2]))


def test_the_subject_of_a_certificate_is_read(tmp_path: Path) -> None:
    files = TestAuthority(folder=tmp_path).issue("alice", "alice@example.org", common_name="alice")
    certificate = ssl.PEM_cert_to_DER_cert(files.cert.read_text(encoding="ascii"))
    assert subject_text(certificate).startswith("CN=alice,OU=Tests")


@pytest.mark.parametrize("encoded", ["3000", "30023000", "3006300402010 0".replace(" ", "")])
def test_bytes_that_are_no_certificate_are_rejected(encoded: str) -> None:
    with pytest.raises(InvalidDer):
        subject_text(bytes.fromhex(encoded[: len(encoded) // 2 * 2]))


def test_a_certificate_of_version_1_has_no_version_field() -> None:
    fields = bytes.fromhex("020101" + "3000" + "3000" + "3000" + "300e310c300a06035504030c03616263")
    tbs = bytes([0x30, len(fields)]) + fields
    assert subject_text(bytes([0x30, len(tbs)]) + tbs) == "CN=abc"
