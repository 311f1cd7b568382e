"""Quotas, and configs of what is no topic, altered and described."""

from tests.compat.protocol_diff.cases.pieces import ABSENT, alter, configs, quota, quotas_of, topic
from tests.compat.protocol_diff.steps import Cases, G, Step, T

CASES = Cases()

# What is checked first

CASES.add("alter.unknown-topic-bad-key", alter([("no.such.config", 0, "1")], name=ABSENT))
CASES.add("alter.unknown-topic-append", alter([("retention.ms", 2, "1")], name=ABSENT))
CASES.add("alter.default-topic", alter([("retention.ms", 0, "1")], name=""))
CASES.add("alter.bad-topic-name", alter([("retention.ms", 0, "1")], name="a b"))
CASES.add("alter.delete-unknown-key", topic(keep=False), alter([("no.such.config", 1, None)]))
CASES.add(
    "alter.blanks", topic(keep=False), alter([("retention.ms", 0, " 7 ")]), configs(2, T(), ["retention.ms"], pause=1)
)
CASES.add(
    "alter.empty-list",
    topic(keep=False),
    alter([("cleanup.policy", 3, "delete")]),
    configs(2, T(), ["cleanup.policy"], pause=1),
)
CASES.add(
    "alter.append-twice",
    topic(keep=False),
    alter([("cleanup.policy", 2, "compact,compact,delete")]),
    configs(2, T(), ["cleanup.policy"], pause=1),
)

# Brokers

CASES.add(
    "alter.broker",
    alter([("background.threads", 0, "11")], kind=4, name="1"),
    configs(4, "1", ["background.threads"], synonyms=True, pause=1),
    alter([("background.threads", 1, None)], kind=4, name="1"),
)
CASES.add(
    "alter.every-broker",
    alter([("num.recovery.threads.per.data.dir", 0, "3")], kind=4, name=""),
    configs(4, "", ["num.recovery.threads.per.data.dir"], synonyms=True, pause=1),
    configs(4, "1", ["num.recovery.threads.per.data.dir"], synonyms=True),
    alter([("num.recovery.threads.per.data.dir", 1, None)], kind=4, name=""),
)
CASES.add("alter.broker-static", alter([("num.partitions", 0, "7")], kind=4, name="1"))
CASES.add("alter.broker-bad-value", alter([("background.threads", 0, "none")], kind=4, name="1"))
CASES.add("alter.broker-out-of-range", alter([("background.threads", 0, "0")], kind=4, name="1"))
CASES.add("alter.broker-no-number", alter([("background.threads", 0, "3")], kind=4, name="one"))
CASES.add("alter.broker-bad-operation", alter([("background.threads", 9, "3")], kind=4, name="1"))
CASES.add("alter.broker-append", alter([("background.threads", 2, "3")], kind=4, name="1"))
CASES.add("alter.broker-delete-static", alter([("num.partitions", 1, None)], kind=4, name="1"))

# Loggers

CASES.add("alter.logger-of-another", alter([("root", 0, "INFO")], kind=8, name="9999"))
CASES.add("alter.logger-of-nobody", alter([("root", 0, "INFO")], kind=8, name=""))
CASES.add("alter.logger-unknown", alter([("no.such.logger", 0, "INFO")], kind=8, name="1"))
CASES.add("alter.logger-bad-level", alter([("root", 0, "LOUD")], kind=8, name="1"))
CASES.add("alter.logger-root-unset", alter([("root", 1, None)], kind=8, name="1"))
CASES.add("alter.logger-append", alter([("root", 2, "INFO")], kind=8, name="1"))
CASES.add(
    "alter.logger-dry",
    alter([("root", 0, "TRACE")], kind=8, name="1", dry=True),
    configs(8, "1", ["root"], mask=("Value",)),
)
CASES.add("configs.logger-of-another", configs(8, "9999"))
CASES.add("configs.logger-of-nobody", configs(8, ""))
CASES.add(
    "alter.logger-legacy",
    Step(
        "AlterConfigs",
        2,
        {"Resources": [{"ResourceType": 8, "ResourceName": "1", "Configs": [{"Name": "root", "Value": "INFO"}]}]},
    ),
)

# Groups and telemetry subscriptions

CASES.add(
    "alter.group",
    alter([("consumer.session.timeout.ms", 0, "50000")], kind=32, name=G("g")),
    configs(32, G("g"), ["consumer.session.timeout.ms"], pause=1),
    alter([("consumer.session.timeout.ms", 1, None)], kind=32, name=G("g")),
)
CASES.add("configs.group-synonyms", configs(32, G("g"), synonyms=True))
CASES.add("configs.group-nameless", configs(32, ""))
CASES.add("alter.group-nameless", alter([("consumer.session.timeout.ms", 0, "50000")], kind=32, name=""))
CASES.add("alter.group-unknown-key", alter([("no.such", 0, "50000")], kind=32, name=G("g")))
CASES.add("alter.group-bad-value", alter([("consumer.session.timeout.ms", 0, "soon")], kind=32, name=G("g")))
CASES.add("alter.group-too-short", alter([("consumer.session.timeout.ms", 0, "1")], kind=32, name=G("g")))
CASES.add("alter.group-too-long", alter([("consumer.session.timeout.ms", 0, "99999999")], kind=32, name=G("g")))
CASES.add(
    "alter.group-heartbeat-too-rare", alter([("consumer.heartbeat.interval.ms", 0, "45000")], kind=32, name=G("g"))
)
CASES.add(
    "alter.group-session-as-short-as-heartbeat",
    alter(
        [("streams.session.timeout.ms", 0, "45000"), ("streams.heartbeat.interval.ms", 0, "45000")],
        kind=32,
        name=G("g"),
    ),
)
CASES.add("alter.group-append", alter([("share.auto.offset.reset", 2, "earliest")], kind=32, name=G("g")))
for value in ("by_duration:P1D", "by_duration:PT1H30M", "by_duration:-PT1H", "by_duration:P", "none", "EARLIEST"):
    CASES.add(
        f"alter.share-begins-{value.replace(':', '-').lower()}",
        alter([("share.auto.offset.reset", 0, value)], kind=32, name=G("g"), dry=True),
    )
# Only validated: another case lists all subscriptions that there are.
CASES.add(
    "alter.client-metrics",
    alter(
        [("metrics", 0, "a.,b."), ("match", 0, "client_id=x.*"), ("interval.ms", 0, "100")],
        kind=16,
        name=G("m"),
        dry=True,
    ),
    alter([("metrics", 2, "c.")], kind=16, name=G("m"), dry=True),
    alter([("metrics", 1, None), ("interval.ms", 1, None)], kind=16, name=G("m"), dry=True),
)
CASES.add("alter.client-metrics-nameless", alter([("metrics", 0, "a.")], kind=16, name=""))
CASES.add("configs.client-metrics-nameless", configs(16, ""))
CASES.add("alter.client-metrics-unknown-key", alter([("no.such", 0, "a.")], kind=16, name=G("m")))
CASES.add("alter.client-metrics-interval", alter([("interval.ms", 0, "99")], kind=16, name=G("m")))
CASES.add("alter.client-metrics-no-interval", alter([("interval.ms", 0, "soon")], kind=16, name=G("m")))
CASES.add("alter.client-metrics-bad-match", alter([("match", 0, "planet=earth")], kind=16, name=G("m")))
CASES.add("alter.client-metrics-bad-pattern", alter([("match", 0, "client_id=[")], kind=16, name=G("m")))

# Quotas


ANN = {"user": G("ann")}
for v in (0, 1):
    CASES.add(
        f"quotas.v{v}",
        quota(ANN, {"producer_byte_rate": 1024.0}, version=v),
        quotas_of(("user", 0, G("ann")), version=v, pause=1),
        quota(ANN, {"producer_byte_rate": None}, version=v),
        quotas_of(("user", 0, G("ann")), version=v, pause=1),
    )
CASES.add(
    "quotas.both",
    quota({"user": G("ann"), "client-id": G("c")}, {"request_percentage": 12.5}),
    quotas_of(("user", 0, G("ann")), pause=1),
    quotas_of(("user", 0, G("ann")), strict=False),
    quotas_of(("user", 0, G("ann")), ("client-id", 0, G("c"))),
    quota({"client-id": G("c"), "user": G("ann")}, {"request_percentage": None}),
    quotas_of(("user", 0, G("ann")), strict=False, pause=1),
)
CASES.add(
    "quotas.validate-only",
    quota(ANN, {"producer_byte_rate": 1.0}, dry=True),
    quotas_of(("user", 0, G("ann")), pause=1),
)
CASES.add("quotas.remove-none", quota(ANN, {"producer_byte_rate": None}))
CASES.add("quotas.no-operation", quota(ANN, {}))
CASES.add("quotas.nobody", quota({}, {"producer_byte_rate": 1.0}))
CASES.add("quotas.empty-name", quota({"user": ""}, {"producer_byte_rate": 1.0}))
CASES.add("quotas.unknown-entity", quota({"planet": "earth"}, {"producer_byte_rate": 1.0}))
CASES.add("quotas.unknown-key", quota(ANN, {"no_such": 1.0}))
CASES.add("quotas.zero", quota(ANN, {"producer_byte_rate": 0.0}))
CASES.add("quotas.negative", quota(ANN, {"request_percentage": -1.0}))
CASES.add("quotas.fraction", quota(ANN, {"producer_byte_rate": 1.5}))
CASES.add("quotas.too-large", quota(ANN, {"consumer_byte_rate": 1e30}))
CASES.add("quotas.ip-key", quota(ANN, {"connection_creation_rate": 1.0}))
CASES.add("quotas.ip", quota({"ip": "127.9.9.9"}, {"connection_creation_rate": 5.0}, dry=True))
CASES.add("quotas.ip-user-key", quota({"ip": "127.9.9.9"}, {"producer_byte_rate": 5.0}, dry=True))
CASES.add("quotas.ip-and-user", quota({"ip": "127.9.9.9", "user": G("ann")}, {"producer_byte_rate": 5.0}, dry=True))
CASES.add("quotas.no-ip", quota({"ip": "no such host"}, {"connection_creation_rate": 5.0}, dry=True))
CASES.add("quotas.twice", quota(ANN, {"producer_byte_rate": 1.0}, dry=True, again=True))
CASES.add("quotas.match-3", quotas_of(("user", 3, None)))
CASES.add("quotas.exact-without-name", quotas_of(("user", 0, None)))
CASES.add("quotas.default-with-name", quotas_of(("user", 1, "ann")))
CASES.add("quotas.any-with-name", quotas_of(("user", 2, "ann")))
CASES.add("quotas.type-twice", quotas_of(("user", 0, "ann"), ("user", 2, None)))
CASES.add("quotas.type-empty", quotas_of(("", 0, "ann")))
CASES.add("quotas.ip-or-user", quotas_of(("user", 0, "ann"), ("ip", 0, "::1")))
