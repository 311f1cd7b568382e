"""All files of a release: `python3 -m tools.packaging.release` writes them to `dist/penstock-VERSION`, and tries each.

Wheel, image with its list of contents, chart, dashboards and alerts, the archive for Spark, and `SHA256SUMS`. There is
no source distribution: the wheel is pure Python, and the sources are the repository's.

Rule: a release is of a commit. The same commit gives the same image on each machine, and the same other files where
Python has the same zlib. The folder exists only once all in it was tried: until then its name ends in `.partial`,
and it has no checksums. `--untried-image` accepts an image that cannot be tried here. To publish is up to people.
"""

import argparse
import hashlib
import io
import shutil
import tempfile
import zlib
from pathlib import Path

from iceberg_export.spark.package import write_archive
from tools.packaging.image import UNKNOWN, BuiltImage, build_image, read_commit
from tools.packaging.oci import paths_below, write_tar
from tools.packaging.release_trials import try_chart, try_contents, try_image, try_spark_archive, try_wheel
from tools.packaging.wheel import DIST, build_wheel
from tools.steps import ROOT, SetupFailed, main, report, say

CHART = ROOT / "deploy" / "chart"
MONITORING = ROOT / "deploy" / "monitoring"
SUMS = "SHA256SUMS"


def build_release(*, untried_image: bool = False) -> Path:
    """Build and try everything. Returns the folder, which exists only if all of that succeeded.

    `untried_image`: whether an image that cannot be tried on this machine belongs to a release all the same.
    """
    revision = read_commit(ROOT).revision
    if revision == UNKNOWN or revision.endswith("-modified"):
        raise SetupFailed("the checkout differs from its commit, and a release is of a commit: commit or stash first")
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        work = Path(temporary)
        wheel = build_wheel(work)
        version = wheel.name.split("-")[1]
        _check_version_of_chart(version)
        folder = DIST / f"penstock-{version}"
        partial = DIST / f"penstock-{version}.partial"
        for old in (folder, partial):
            shutil.rmtree(old, ignore_errors=True)
        partial.mkdir(parents=True)
        image = _build_all(partial, work, wheel, version)
        try_wheel(partial / wheel.name, work)
        try_contents(image.contents)
        lacking = try_image(image.path, work)
        try_chart(partial / f"penstock-{version}.tgz", version)
        try_spark_archive(partial / f"penstock-spark-{version}.zip")
        if read_commit(ROOT).revision != revision:
            raise SetupFailed("the checkout changed while the release was built: run it again")
        complete(partial, folder, None if untried_image else lacking)
    say(f"  image digest: {image.digest}, of commit {revision}")
    return folder


def complete(partial: Path, folder: Path, lacking: str | None) -> None:
    """Write the checksums of files that were tried, and give their folder its name.

    `lacking`: why the image was not tried, if that counts. Raises `SetupFailed` then, and leaves `partial` as it is.
    """
    if lacking is not None:
        raise SetupFailed(
            f"the image was not tried: {lacking}. So there is no release, and everything is in {partial}. "
            "Install runc, and run make release as root. Or load the image into an engine elsewhere, start it, and run "
            f'make release ARGS="--untried-image":\n  docker load --input {partial}/penstock-*.oci.tar\n'
            "  docker run --network host penstock:VERSION run"
        )
    write_sums(partial)
    partial.rename(folder)


def _build_all(folder: Path, work: Path, wheel: Path, version: str) -> BuiltImage:
    """Write every file but the checksums into `folder`. Returns the image's."""
    report("wheel", "built", Path(shutil.copy(wheel, folder)))
    image = build_image(folder)
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
    return image


def _check_version_of_chart(version: str) -> None:
    """Helm goes by the version in Chart.yaml, not by the name of the file."""
    lines = (CHART / "Chart.yaml").read_text(encoding="utf-8").splitlines()
    for key in ("version", "appVersion"):
        (stated,) = [line.partition(":")[2].strip(' "') for line in lines if line.startswith(f"{key}:")]
        if stated != version:
            raise SetupFailed(f"Chart.yaml has {key} {stated}, and the wheel is {version}: make them equal")


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
    # Not gzip.compress: its header depends on the version of Python.
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    archive.write_bytes(packer.compress(content.getvalue()) + packer.flush())


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


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--untried-image", action="store_true", help="accept an image that cannot be tried here")
    say(f"  all of the release: {build_release(untried_image=parser.parse_args().untried_image)}")


if __name__ == "__main__":
    main(_main)
