"""Java archives from Maven Central: Apache Kafka (the peer of comparisons), an older client, Streams, Iceberg, ...

Rule: a set is a list of exact artifacts with the SHA-256 of each (`tools/jars/SET.lock`); nothing is resolved, so
nothing moves. The client is Apache Ivy, which is part of PySpark and needs only Java; `$PENSTOCK_MAVEN` names another
repository than Maven Central. A list is made anew from `tools/jars/SET.pom.xml` by `python3 -m tools.lock_jars SET`.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tools.java_runtime import TRUST_STORE_PASSWORD, certificate_bundle, write_trust_store
from tools.steps import ROOT, SetupFailed, cache_folder, ensure, environment_folder, run

LOCKS = ROOT / "tools" / "jars"
TITLES = {
    "kafka": "Apache Kafka 4.3.1",
    "kafka-v1": "Kafka's client 3.9",
    "streams": "Kafka Streams 4.3.1",
    "spark": "Iceberg 1.12 for Spark 4.1",
    "spark-kafka": "Spark's Kafka and Avro 4.1",
    "compiler": "Java compiler (ecj)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    group: str
    name: str
    version: str
    sha256: str
    classifier: str = ""
    """Which of a version's jars, for example "test"; empty for the jar itself."""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}{self.classifier and '-'}{self.classifier}.jar"


def artifacts(jar_set: str) -> Iterator[Artifact]:
    """The artifacts of a set, as its lock lists them: `group:name:version[:classifier] sha256` a line."""
    for line in (LOCKS / f"{jar_set}.lock").read_text().splitlines():
        coordinates, sha256 = line.split()
        group, name, version, *classifier = coordinates.split(":")
        yield Artifact(group=group, name=name, version=version, sha256=sha256, classifier="".join(classifier))


def jar_folder(jar_set: str) -> Path:
    """Where `ensure_jars` puts a set; its name changes with the lock."""
    digest = hashlib.sha256((LOCKS / f"{jar_set}.lock").read_bytes()).hexdigest()[:12]
    return cache_folder() / "jars" / f"{jar_set}-{digest}"


def ensure_jars(jar_set: str, java: Path) -> Path:
    """The folder with the jars of a set. `java`: home of the runtime that fetches them."""
    return ensure(TITLES[jar_set], jar_folder(jar_set), lambda folder: _fetch(jar_set, java, folder))


def _fetch(jar_set: str, java: Path, folder: Path) -> None:
    ivy_jars = list(environment_folder().glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"))
    if not ivy_jars:
        raise SetupFailed("the test group lacks pyspark: run python3 -m tools.environment test")
    work = cache_folder() / "ivy"
    work.mkdir(parents=True, exist_ok=True)
    settings, module, trust_store = (work / f"{jar_set}-{name}" for name in ("settings.xml", "ivy.xml", "cacerts.jks"))
    settings.write_text(_settings(work / "cache"))
    module.write_text(_module(jar_set))
    java_options = [f"-Divy.default.ivy.user.dir={work}"]
    bundle = certificate_bundle()
    if bundle is not None:
        write_trust_store(bundle, trust_store)
        java_options += [f"-Djavax.net.ssl.trustStore={trust_store}"]
        java_options += [f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}"]
    start = [str(java / "bin" / "java"), *java_options, "-cp", str(ivy_jars[0]), "org.apache.ivy.Main"]
    retrieve = ["-types", "jar", "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    run(f"jars {jar_set}", [*start, "-settings", settings, "-ivy", module, *retrieve], attempts=3)
    for artifact in artifacts(jar_set):
        jar = folder / artifact.file_name
        if not jar.exists():
            raise SetupFailed(f"{artifact.file_name} was not fetched: run it again; PENSTOCK_MAVEN names a mirror")
        if hashlib.sha256(jar.read_bytes()).hexdigest() != artifact.sha256:
            raise SetupFailed(f"{artifact.file_name} is not what {jar_set}.lock pins: remove {work} and run it again")


def _settings(cache: Path) -> str:
    mirror = os.environ.get("PENSTOCK_MAVEN")
    root = f"root={quoteattr(mirror)}" if mirror else ""
    return (
        f'<ivysettings><settings defaultResolver="central"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><ibiblio name="central" m2compatible="true" usepoms="false" {root}/>'
        "</resolvers></ivysettings>"
    )


def _module(jar_set: str) -> str:
    jars_of: dict[tuple[str, str, str], list[str]] = {}
    for artifact in artifacts(jar_set):
        classifier = f' m:classifier="{artifact.classifier}"' if artifact.classifier else ""
        jar = f'<artifact name="{artifact.name}" type="jar" ext="jar"{classifier}/>'
        jars_of.setdefault((artifact.group, artifact.name, artifact.version), []).append(jar)
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false" conf="default->*">'
        f"{''.join(jars)}</dependency>"
        for (group, name, version), jars in jars_of.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="penstock" module="{jar_set}"/>'
        '<configurations><conf name="default"/></configurations><publications/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
