"""Packages are fetched from the machine's own mirrors, with its keys; only a suite is added."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from rewardlab.envs.maniskill import debian_packages
from rewardlab.envs.maniskill.debian_packages import choose_sources, format_sources, read_sources, unpack_packages
from rewardlab.errors import DataError

# As Debian's images have it: comments between fields, and a second paragraph for security.
PARAGRAPHS = """\
Types: deb deb-src
# http://snapshot.example/20250520
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
LINES = """\
# deb http://comment.example/ubuntu jammy main
deb [arch=amd64,i386 signed-by=/etc/keys/ubuntu.gpg] http://mirror.example/ubuntu jammy main universe # a comment
deb http://mirror.example/ubuntu jammy-updates main
deb-src http://mirror.example/ubuntu jammy main
deb [arch=amd64] https://docker.example/linux/ubuntu jammy stable
deb http://node.example nodistro main
deb cdrom:[Ubuntu 22.04]/ jammy main
"""


def write_apt(directory: Path, name: str, text: str) -> Path:
    file = directory / "apt" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return directory / "apt"


def test_a_suite_is_added_where_the_release_is_and_keys_are_kept(tmp_path: Path) -> None:
    sources = read_sources(write_apt(tmp_path, "sources.list.d/debian.sources", PARAGRAPHS))
    archive, security = choose_sources(sources, "bookworm", "bookworm-backports")
    assert archive == {
        "types": "deb",
        "uris": "http://mirror.example/debian",
        "suites": "bookworm bookworm-updates bookworm-backports",
        "components": "main",
        "signed-by": "/usr/share/keyrings/debian-archive-keyring.gpg",
    }
    assert security["suites"] == "bookworm-security"
    assert security["signed-by"].splitlines() == ["-----BEGIN PGP PUBLIC KEY BLOCK-----", " .", " mQINBF"]


def test_entries_of_one_line_are_read_and_those_of_others_are_left_out(tmp_path: Path) -> None:
    sources = read_sources(write_apt(tmp_path, "sources.list", LINES))
    chosen = choose_sources(sources, "jammy", None)
    assert [(each["uris"], each["suites"]) for each in chosen] == [
        ("http://mirror.example/ubuntu", "jammy"),
        ("http://mirror.example/ubuntu", "jammy-updates"),
    ]
    assert chosen[0]["signed-by"] == "/etc/keys/ubuntu.gpg"
    assert chosen[0]["architectures"] == "amd64 i386"


def test_what_was_written_can_be_read_again(tmp_path: Path) -> None:
    sources = read_sources(write_apt(tmp_path, "sources.list.d/debian.sources", PARAGRAPHS))
    again = write_apt(tmp_path / "again", "sources.list.d/debian.sources", format_sources(sources))
    assert read_sources(again) == sources


def test_a_machine_without_sources_of_its_release_is_told(tmp_path: Path) -> None:
    sources = read_sources(write_apt(tmp_path, "sources.list", LINES))
    with pytest.raises(DataError, match="found no package sources of noble among 4 entries"):
        choose_sources(sources, "noble", None)


class FakeApt:
    """Stands for apt-get and dpkg-deb: remembers calls, and what they were given."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[list[str]] = []
        self.sources = ""

    def __call__(self, command: list[str], **_: object) -> SimpleNamespace:
        if command[0] == "dpkg-deb":
            self.calls.append([Path(part).name for part in command])
            return SimpleNamespace(returncode=0)
        assert command[:2] == ["apt-get", "--config-file"]
        work = Path(command[2]).parent
        self.sources = (work / "sources.sources").read_text()
        arguments = command[4:]
        self.calls.append(arguments)
        output, complaints = "", "W: Failed to fetch backports 404\n" if arguments == ["update"] else ""
        if arguments[0] == "install":
            output = (
                "Inst libdrm2 [2.4.114-1] (2.4.123-1~bpo12+1 Debian Backports:stable-backports [amd64])\n"
                "Inst mesa-vulkan-drivers (25.0.7-2~bpo12+1 Debian Backports:stable-backports [amd64])\n"
                "Conf libdrm2 (2.4.123-1~bpo12+1 Debian Backports:stable-backports [amd64])\n"
            )
        if arguments[0] == "download":
            (work / "packages" / "mesa.deb").touch()
        if arguments[0] == self.fails:
            return SimpleNamespace(returncode=100, stdout="", stderr="E: Unable to locate package\nnoise\n")
        return SimpleNamespace(returncode=0, stdout=output, stderr=complaints)


@pytest.fixture
def debian_12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = write_apt(tmp_path, "sources.list.d/debian.sources", PARAGRAPHS)
    monkeypatch.setattr(debian_packages, "read_sources", lambda: read_sources(apt))
    monkeypatch.setattr(debian_packages, "release_name", lambda: "bookworm")


@pytest.mark.usefixtures("debian_12")
def test_what_the_machine_lacks_is_downloaded_and_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = FakeApt()
    monkeypatch.setattr(subprocess, "run", apt)
    unpack_packages(["mesa-vulkan-drivers"], tmp_path / "unpacked", more_suites="bookworm-backports")
    assert "suites: bookworm bookworm-updates bookworm-backports\n" in apt.sources
    update, install, download, unpack = apt.calls
    assert update == ["update"]
    assert install[-3:] == ["--target-release", "bookworm-backports", "mesa-vulkan-drivers"]
    assert "--simulate" in install
    assert download == [
        *("download", "libdrm2=2.4.123-1~bpo12+1"),
        "mesa-vulkan-drivers=25.0.7-2~bpo12+1",
    ]
    assert unpack == ["dpkg-deb", "-x", "mesa.deb", "unpacked"]


@pytest.mark.usefixtures("debian_12")
def test_a_failure_of_apt_is_given_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", FakeApt(fails="install"))
    with pytest.raises(DataError, match=r"apt-get install .* failed: E: Unable to locate package W: Failed to fetch"):
        unpack_packages(["mesa-vulkan-drivers"], tmp_path / "unpacked", more_suites="bookworm-backports")
