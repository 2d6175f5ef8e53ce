"""A package's name and version in, its unpacked files out."""

import hashlib
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

INDEX = "https://pypi.org/simple"


def fetched(name: str, version: str, place: Path, ending: str = ".tar.gz") -> Path:
    """The directory with the files of a source distribution or wheel, downloaded unless it is there."""
    target = place / f"{name}-{version}"
    if not target.exists():
        archive = _downloaded(name, version, place, ending)
        _unpack(archive, target)
    inner = target / f"{name}-{version}"
    return inner if inner.exists() else target


def _downloaded(name: str, version: str, place: Path, ending: str) -> Path:
    page = urllib.request.urlopen(f"{INDEX}/{name}/").read().decode()
    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]+)"', page)
    for link, digest in links:
        filename = link.rsplit("/", 1)[-1]
        if filename.startswith(f"{name}-{version}") and filename.endswith(ending):
            data = urllib.request.urlopen(urllib.parse.urljoin(f"{INDEX}/{name}/", link)).read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise OSError(f"{filename}: its hash is not the one that the index names.")
            archive = place / filename
            archive.write_bytes(data)
            return archive
    raise OSError(f"{INDEX}/{name}/ has no {name}-{version}*{ending}.")


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)
    else:
        with tarfile.open(archive) as files:
            files.extractall(target, filter="data")


def installed(packages: list[str], place: Path) -> Path | None:
    """A directory with packages that a suite wants, apart from the environment; None where pip could not."""
    target = place / "packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), *packages]
    if not target.exists() and subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    return target
