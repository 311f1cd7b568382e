"""What the file of catalogs that follow may say, and what is wrong in one is told at the start."""

import re
from pathlib import Path

import pytest

from agent.config.external_catalog_settings import ExternalCatalogSettings
from agent.config.settings import CliCommand, InvalidSettings, Settings, load_settings
from agent.lake.external_catalogs import bucket_properties
from iceberg_export.external_catalogs.entries import CatalogFailed, without_leaks


def load(
    folder: Path, text: str, *, store: str = "file:///srv/store", environment: dict[str, str] | None = None
) -> Settings:
    path = folder / "external-catalogs.toml"
    path.write_text(text)
    given = {"ledger": "memory:", "store": store, "external-catalogs": str(path)}
    return load_settings(CliCommand.AGENT, given, environment=environment or {})


def test_nobody_follows_unless_it_is_said() -> None:
    assert load_settings(CliCommand.RUN, {}, environment={}).external_catalogs == ()


def test_catalogs_have_their_names_and_the_properties_of_pyiceberg(tmp_path: Path) -> None:
    text = """
        [warehouse]
        type = "sql"
        uri = "sqlite:////srv/catalog.sqlite"
        [shared-1]
        type = "rest"
        uri = "https://catalog.example"
        namespace = "raw.kafka"
        topics = "orders-.*"
        warehouse = "main"
        "rest.sigv4-enabled" = true
        "s3.connect-timeout" = 5
    """
    assert load(tmp_path, text).external_catalogs == (
        ExternalCatalogSettings(
            name="warehouse",
            properties={"type": "sql", "uri": "sqlite:////srv/catalog.sqlite", "pool_pre_ping": "true"},
        ),
        ExternalCatalogSettings(
            name="shared-1",
            namespace=("raw", "kafka"),
            topics=re.compile("orders-.*"),
            properties={
                "type": "rest",
                "uri": "https://catalog.example",
                "warehouse": "main",
                "rest.sigv4-enabled": "true",
                "s3.connect-timeout": "5",
            },
        ),
    )


def test_secrets_come_from_the_environment_or_a_file_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t-token\nmore\n")
    text = f"""
        [a]
        type = "sql"
        uri = {{ env = "CATALOG_URI" }}
        [b]
        type = "rest"
        uri = "https://me:p%2Ass@catalog.example"
        token = {{ file = "{tmp_path}/token" }}
        credential = "id:in-the-file"
    """
    uri = "sqlite:////srv/hidden.sqlite"
    settings = load(tmp_path, text, environment={"CATALOG_URI": uri})
    first, second = settings.external_catalogs
    assert first.properties["uri"] == uri
    assert second.properties["token"] == "s3cr3t-token"
    shown = repr(settings)
    for secret in (uri, "s3cr3t-token", "in-the-file", "p%2Ass"):
        assert secret not in shown

    def fail() -> None:
        try:
            raise OSError(f"cannot reach {uri} with s3cr3t-token, id:in-the-file, p%2Ass and p*ss")
        except OSError as error:
            raise ValueError(f"no catalog:\n{error}") from error

    with pytest.raises(CatalogFailed) as failed:
        without_leaks((*first.secrets, *second.secrets), fail)
    assert str(failed.value) == "ValueError: no catalog: cannot reach *** with ***, ***, *** and ***"
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 catalogs"),
        ("a = 1", r"\[a\] is no table of a catalog"),
        ('["a b"]\ntype = "sql"', r"\[a b\] is no table of a catalog"),
        ("[a", "is not TOML"),
        ("[a]", r"\[a\] type is missing: it is one of glue, hive, rest, sql"),
        ('[a]\ntype = "sqll"', "did you mean sql"),
        ('[a]\ntype = "dynamodb"', "'dynamodb' is not supported"),
        ('[a]\ntype = "rest"', "uri is missing"),
        ('[a]\ntype = "rest"\nuri = "http://x"\nnamespace = "a..b"', "separate levels by single dots"),
        ('[a]\ntype = "rest"\nuri = "http://x"\ntopics = "("', r"\[a\] topics is no regular expression"),
        ('[a]\ntype = "rest"\nuri = { env = "NOT_THERE" }', "the environment has no NOT_THERE"),
        ('[a]\ntype = "rest"\nuri = { file = "/not/there" }', "/not/there cannot be read"),
        ('[a]\ntype = "rest"\nuri = { file = "/dev/null" }', "first line of /dev/null is the value, and it is empty"),
        ('[a]\ntype = "rest"\nuri = { vault = "x" }', "must be a text, a number"),
        ('[a]\ntype = "rest"\nuri = "http://x"\ns3.endpoint = "http://y"', "quote keys that hold dots"),
        ('[a]\ntype = "hive"\nuri = "thrift://x"', r"needs the module thrift: pip install 'pyiceberg\[hive\]'"),
        (
            '[a]\ntype = "sql"\nuri = "postgresql+psycopg://x/y"',
            r"needs the module psycopg: pip install 'psycopg\[binary\]'",
        ),
    ],
)
def test_what_is_wrong_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        load(tmp_path, text)


def test_a_file_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(InvalidSettings, match="/not/there cannot be read"):
        load_settings(CliCommand.RUN, {"external-catalogs": "/not/there"}, environment={})


def test_tables_in_memory_have_no_external_catalogs(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="a store in memory"):
        load(tmp_path, '[a]\ntype = "sql"\nuri = "sqlite://"', store="memory:")


def test_pyiceberg_finds_the_bucket_where_the_agent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example:9000")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    text = '[a]\ntype = "sql"\nuri = "sqlite://"'
    found = bucket_properties(load(tmp_path, text, store="s3://lake/kafka"))
    assert (found["s3.endpoint"], found["s3.region"]) == ("https://s3.example:9000", "eu-central-1")
    assert not any("key" in name or "io-impl" in name for name in found)
    assert bucket_properties(load(tmp_path, text)) == {}
