"""Programs of Debian's packages, unpacked and not installed: no daemon starts, nothing stays."""

import os
import subprocess
from pathlib import Path

__all__ = ["FOLDER", "program"]

FOLDER = Path(os.environ.get("IMAGE_TEST_DIR", "/var/tmp/leafcode-image-test"))


def program(package: str, name: str) -> Path:
    """A program that needs nothing of its package but itself; downloaded once."""
    found = FOLDER / package / "usr" / "bin" / name
    if not found.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in FOLDER.glob(f"{package}_*.deb"):
            old.unlink()
        download = ("apt-get", "download", "-qq", package)
        if subprocess.run(download, cwd=FOLDER, check=False).returncode:
            subprocess.run(("apt-get", "update", "-qq"), check=True)  # no list, or an old one
            subprocess.run(download, cwd=FOLDER, check=True)
        (archive,) = FOLDER.glob(f"{package}_*.deb")
        subprocess.run(("dpkg-deb", "-x", archive, FOLDER / package), check=True)
        archive.unlink()
    return found
