"""All files of a release: `python3 -m tools.release` writes them to `dist/penstock-VERSION`, and tries each.

Wheel, image with its list of contents, chart, dashboards and alerts, the archive for Spark, and `SHA256SUMS`. There is
no source distribution: the wheel is pure Python, and the sources are the repository's.

Rule: a release is of a commit, and the same commit gives the same bytes. To publish it is up to people.
"""

import gzip
import hashlib
import io
import shutil
import tempfile
from pathlib import Path

from iceberg_export.spark.package import write_archive
from tools.environment import UV_SETTINGS, ensure_uv
from tools.helm import ensure_helm
from tools.image import build_image, read_commit, run_inside
from tools.oci import paths_below, unpack_archive, write_tar
from tools.steps import ROOT, SetupFailed, main, report, run, say
from tools.wheel import DIST, build_wheel

CHART = ROOT / "deploy" / "chart"
MONITORING = ROOT / "deploy" / "monitoring"
SUMS = "SHA256SUMS"


def build_release(source: Path = ROOT) -> Path:
    """Build and try everything. Returns the folder."""
    if read_commit(source).revision.endswith("-modified"):
        raise SetupFailed("the checkout differs from its commit, and a release is of a commit: commit or stash first")
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        work = Path(temporary)
        wheel = build_wheel(work, source)
        version = wheel.name.split("-")[1]
        folder = DIST / f"penstock-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wheel = Path(shutil.copy(wheel, folder))
        report("wheel", "built", wheel)
        image = build_image(folder, source=source)
        report("image", image.digest[:14], image.path)
        chart = folder / f"penstock-{version}.tgz"
        pack(work / "chart", {"penstock": CHART}, chart, without=ignored())
        report("chart", "built", chart)
        monitoring = folder / f"penstock-monitoring-{version}.tgz"
        pack(work / "monitoring", {f"penstock-monitoring-{version}": MONITORING}, monitoring, only=(".json", ".yaml"))
        report("dashboards, alerts", "built", monitoring)
        spark = folder / f"penstock-spark-{version}.zip"
        write_archive(spark)
        report("archive for Spark", "built", spark)
        _try_wheel(wheel)
        _try_image(image.path, work / "root")
        _try_chart(chart)
    write_sums(folder)
    say(f"  image digest: {image.digest}")
    return folder


def pack(
    work: Path, folders: dict[str, Path], archive: Path, without: tuple[str, ...] = (), only: tuple[str, ...] = ()
) -> None:
    """Pack folders under the given names. `without`: names at their tops that stay out. `only`: endings of files."""
    for name, folder in folders.items():
        for path in paths_below(folder):
            source = folder / path
            if source.is_dir() or path.split("/")[0] in without or (only and not path.endswith(only)):
                continue
            target = work / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    content = io.BytesIO()
    write_tar(work, paths_below(work), content, {})
    archive.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in `folder`, as `sha256sum --check` reads them."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name != SUMS:
            with path.open("rb") as stream:
                lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {path.name}\n")
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    report("checksums", "written", folder / SUMS)


def ignored() -> tuple[str, ...]:
    """What Helm itself leaves out of the chart."""
    lines = (CHART / ".helmignore").read_text(encoding="utf-8").splitlines()
    return (".helmignore", *(line.rstrip("/") for line in lines if line and not line.startswith("#")))


def _try_wheel(wheel: Path) -> None:
    command: list[str | Path] = [ensure_uv(), "tool", "run", "--isolated", "--from", wheel]
    run("wheel as a tool", [*command, "penstock", "--version"], env=UV_SETTINGS)
    report("wheel", "runs", wheel)


def _try_image(archive: Path, root: Path) -> None:
    root.mkdir()
    image = unpack_archive(archive, root)["config"]
    env = dict(word.split("=", 1) for word in image["Env"])
    run_inside(root, [*image["Entrypoint"], "--version"], env)
    report("image", "runs", archive)


def _try_chart(chart: Path) -> None:
    helm = ensure_helm()
    values = CHART / "ci" / "minimal.yaml"
    run("chart", [helm, "lint", chart, "--values", values])
    run("chart", [helm, "template", "kafka", chart, "--values", values])
    report("chart", "renders", chart)


if __name__ == "__main__":
    main(lambda: say(f"  all of the release: {build_release()}"))
