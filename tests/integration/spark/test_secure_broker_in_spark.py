"""Spark with brokers that authenticate: Kafka's source and sink over TLS, also by a delegation token, the catalog, and
`format("penstock")`."""

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from tests.support.processes import provided
from tests.support.security.tenants import ALICE, BOB, TenantBroker, acl, tenant_broker
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"
SECONDS_MAX = 30
VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A broker of `penstock run --secure`, with a topic."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("secure-spark")
        (folder / "key").write_text(os.urandom(32).hex(), encoding="utf-8")
        broker = PenstockFactory(folder=folder, stack=stack)(
            env={"PENSTOCK_SECURE": "true"},
            options={"tail-interval-ms": "50"},
            settings={"delegation.token.secret.key.file": str(folder / "key")},
        )
        admin = admin_of(broker)
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(SECONDS_MAX)
        yield broker


def admin_of(broker: Penstock) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca(broker)),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": password(broker),
        }
    )


def ca(broker: Penstock) -> Path:
    return broker.data / "tls" / "ca.pem"


def password(broker: Penstock) -> str:
    return (broker.data / "admin.password").read_text(encoding="utf-8").strip()


def scram_login(user: str, secret: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{secret}";'


@pytest.mark.slow
def test_kafkas_sink_and_source_and_the_bucket_through_an_agent(spark: "SparkSession", broker: Penstock) -> None:
    from iceberg_export.spark.source import register

    register(spark)
    kafka = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": scram_login("admin", password(broker)),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(ca(broker)),
    }
    frame = spark.range(100, numPartitions=1).selectExpr("cast(id as string) as value")
    frame.write.format("kafka").options(**kafka, topic=TOPIC).save()
    by_kafka = spark.read.format("kafka").options(**kafka, subscribe=TOPIC).load()
    assert sorted(bytes(row.value) for row in by_kafka.select("value").collect()) == sorted(VALUES)

    tenant = {
        "penstock.server": f"https://{broker.http.rpartition('/')[2]}",
        "penstock.user": "admin",
        "penstock.password.file": str(broker.data / "admin.password"),
        "penstock.ca": str(ca(broker)),
    }
    through_agent = spark.read.format("penstock").options(**tenant, subscribe=TOPIC).load()
    assert sorted(bytes(row.value) for row in through_agent.select("value").collect()) == sorted(VALUES)
    assert through_agent.exceptAll(by_kafka.select(*through_agent.columns)).count() == 0

    untrusted = {name: value for name, value in tenant.items() if name != "penstock.ca"}
    with pytest.raises(Exception, match=r"is not trusted: .* as penstock\.ca"):
        spark.read.format("penstock").options(**untrusted, subscribe=TOPIC).load().count()


@contextmanager
def cluster_of_tokens(spark: "SparkSession", name: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Spark's settings `spark.kafka.clusters.NAME.*`. They and all tokens of Spark's user are gone behind the block."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    names = {f"spark.kafka.clusters.{name}.{key}": value for key, value in settings.items()}
    for key, value in names.items():
        conf.set(key, value)
    try:
        yield
    finally:
        jvm.org.apache.hadoop.security.UserGroupInformation.setLoginUser(None)
        for key in names:
            conf.remove(key)


@pytest.mark.slow
def test_kafkas_sink_and_source_by_a_token_that_spark_obtains(spark: "SparkSession", broker: Penstock) -> None:
    """The connector takes the token by itself (`KafkaConfigUpdater.setAuthenticationConfigIfNeeded`). The test calls
    Spark's token provider, which cluster managers call where Hadoop has Kerberos
    (`CoarseGrainedSchedulerBackend.start`, `HadoopDelegationTokenManager.obtainDelegationTokens`)."""
    admin, topic = admin_of(broker), "by-token"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS_MAX)
    change = UserScramCredentialUpsertion(
        "jobs", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"jobs-secret", b"a salt"
    )
    rights = [acl(topic, "jobs"), acl(topic, "jobs", AclOperation.WRITE)]
    for future in [*admin.alter_user_scram_credentials([change]).values(), *admin.create_acls(rights).values()]:
        future.result(SECONDS_MAX)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    user = jvm.org.apache.hadoop.security.UserGroupInformation
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca(broker))}
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": scram_login("jobs", "jobs-secret")}
    without_login = {"kafka.bootstrap.servers": broker.bootstrap, **{f"kafka.{key}": trust[key] for key in trust}}
    frame = spark.range(100, numPartitions=1).selectExpr("cast(id as string) as value")
    settings = {
        "auth.bootstrap.servers": broker.bootstrap,
        "target.bootstrap.servers.regex": broker.bootstrap.replace(".", r"\."),
        "security.protocol": "SASL_SSL",
        **trust,
        **{f"kafka.{key}": value for key, value in login.items()},
    }
    with cluster_of_tokens(spark, "penstock", settings):
        tokens = jvm.org.apache.hadoop.security.Credentials()
        provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
        provider.obtainDelegationTokens(spark.sparkContext._jsc.hadoopConfiguration(), conf, tokens)
        assert tokens.numberOfTokens() == 1
        token = tokens.getAllTokens().iterator().next()
        assert token.getKind().toString() == "KAFKA_DELEGATION_TOKEN"
        user.getCurrentUser().addCredentials(tokens)

        frame.write.format("kafka").options(**without_login, topic=topic).save()
        read = spark.read.format("kafka").options(**without_login)
        rows = read.option("subscribe", topic).load().select("value").collect()
        assert sorted(bytes(row.value) for row in rows) == sorted(VALUES)
        with pytest.raises(Exception, match=r"TopicAuthorizationException"):
            read.option("subscribe", TOPIC).load().collect()

        properties = jvm.java.util.Properties()
        for key, value in {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            **trust,
            **login,
        }.items():
            properties.setProperty(key, value)
        expiry = jvm.org.apache.kafka.clients.admin.ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)
        with_password = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        with_password.expireDelegationToken(b64decode(bytes(token.getPassword())), expiry).expiryTimestamp().get()
        with_password.close()
        with pytest.raises(Exception, match=r"SaslAuthenticationException"):
            read.option("subscribe", topic).load().collect()


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[TenantBroker]:
    folder = tmp_path_factory.mktemp("catalog-tenants")
    store = f"s3://{minio.make_bucket('catalog-tenants')}/a/prefix"
    with tenant_broker(folder, store=store, env=minio.settings, catalog_vended_credentials="sts") as tenants:
        tenants.create("alices", "bobs")
        tenants.allow(acl("alices", "alice"), acl("bobs", "bob"))
        for topic in ("alices", "bobs"):
            tenants.produce(topic, map(str, range(100)))
        tenants.archive("alices", "bobs")
        admin = tenants.admin
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("alice", info, b"wonderland", b"a salt")
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(SECONDS_MAX)
        yield tenants


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "login"),
    [
        ("by_token", {"token": ALICE}),
        (
            "by_password",
            {
                "rest.auth.type": "basic",
                "rest.auth.basic.username": "alice",
                "rest.auth.basic.password": "wonderland",
            },
        ),
    ],
)
def test_iceberg_reads_a_tenants_table_alone(
    spark: "SparkSession", tenants: TenantBroker, name: str, login: dict[str, str]
) -> None:
    catalog = f"tenant_{name}"
    properties = {"type": "rest", "uri": f"http://{tenants.broker.http}/iceberg", "cache-enabled": "false", **login}
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{key}", value)
    assert [row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.lake").collect()] == ["alices"]
    assert spark.table(f"{catalog}.lake.alices").count() == 100
    with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|NoSuchTable|cannot be found"):
        spark.table(f"{catalog}.lake.bobs").count()
    with pytest.raises(Exception, match=r"Access Denied|403"):
        spark.sql(f"INSERT INTO {catalog}.lake.alices SELECT * FROM {catalog}.lake.alices")
    assert BOB not in str(properties)
