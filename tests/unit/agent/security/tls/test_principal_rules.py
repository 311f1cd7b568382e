"""Mapping rules, with the answers of org.apache.kafka.common.security.ssl.SslPrincipalMapper (Kafka 4.3.1)."""

import pytest

from agent.security.tls.principal_rules import InvalidRules, read_rules

SUBJECT = "CN=Alice,OU=Sales,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SUBJECT, SUBJECT),
        ("", SUBJECT, None),
        ("RULE:^CN=(.*?),.*$/$1/", SUBJECT, "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", SUBJECT, "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U", SUBJECT, "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", SUBJECT, "alice@sales"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "O=x", "O=x"),
        ("RULE:^cn=(.*?),.*$/$1/", SUBJECT, None),
        ("RULE:^(?i)cn=(.*?),.*$/$1/".replace("^(?i)", "(?i)^"), SUBJECT, "Alice"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", SUBJECT, "Alice"),
        ("RULE:CN=Alice/x/", SUBJECT, None),
        (r"RULE:^.*OU=(.*?),.*$/a\/b\$1$1/", SUBJECT, "a/b$1Sales"),
        ("RULE:^CN=(.*?),.*$/$1-$2/", SUBJECT, "Alice-$2"),
        ("RULE:^CN=(.*?),.*$/$12/", SUBJECT, "Alice2"),
        ("RULE:.*/x/", "abc", "xx"),
        ("RULE:^CN=(.*?)(z)?,.*$/$1$2/", SUBJECT, "Alice"),
        ("DEFAULT, RULE:.*/x/", "abc", "abc"),
        (",,DEFAULT", "abc", "abc"),
        (r"RULE:^CN=(.*?)\,(.*)$/$0/", "CN=a,b", "CN=a,b"),
        (r"RULE:[]\[&\&]+\[[&]/x/", "][&&[&", "x"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_decides(rules: str, subject: str, name: str | None) -> None:
    assert read_rules(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("default", "neither DEFAULT nor RULE"),
        ("RULE:a/b", "neither DEFAULT nor RULE"),
        ("RULE:a/b/X", "neither DEFAULT nor RULE"),
        ("DEFAULT RULE:a/b/", "neither DEFAULT nor RULE"),
        ("RULE:(/b/", "no regular expression"),
        ("RULE:^CN=([^, +),OU=([^,]+).*/$1/", "within a set of characters"),
        ("RULE:[[a]/x/", "within a set of characters"),
        ("RULE:[a-z&&b]/x/", "within a set of characters"),
        ("RULE:a[b/x/", "no regular expression"),
        ("RULE:a/$1/", r"no group for \$1"),
        ("RULE:(a)/${b}/", r"no group for \$\{b\}"),
        ("RULE:(a)/$x/", "refers to no group"),
    ],
)
def test_a_rule_that_cannot_work_is_rejected(rules: str, message: str) -> None:
    with pytest.raises(InvalidRules, match=message):
        read_rules(rules)
