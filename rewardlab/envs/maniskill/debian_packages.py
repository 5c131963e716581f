"""Unpacks packages of Debian or Ubuntu into a directory, beside the system, which stays as it is; no root is needed.

apt does the work, with lists and a cache of its own. Mirrors and signing keys are those of the machine's own sources,
so packages are checked as always; only a suite may be added to them.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from rewardlab.errors import DataError

APT = Path("/etc/apt")
Source: TypeAlias = dict[str, str]  # fields of an entry of apt's sources by their names in lower case
# Options of entries of one line that have another name as a field.
FIELDS = {"arch": "architectures", "lang": "languages", "target": "targets"}
ALIASES = {"stable", "oldstable", "testing", "unstable", "sid"}
# The machine's own configuration is read first: proxies, certificates. Commands that it runs after an update (a cleared
# cache, a refreshed software catalogue) are meant for the machine's own lists.
CONFIG = """
Dir::Etc::sourcelist "{work}/sources.sources";
Dir::Etc::sourceparts "-";
Dir::State::lists "{work}/lists";
Dir::Cache "{work}/cache";
Acquire::Languages "none";
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


def has_apt() -> bool:
    """Return whether this is a machine whose packages come with apt."""
    return all(shutil.which(command) for command in ("apt-get", "dpkg-deb", "ldd"))


def release_name() -> str:
    """Return the code name of this machine's release of Debian or Ubuntu, such as bookworm; "" if it has none."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return release.get("UBUNTU_CODENAME") or release.get("DEBIAN_CODENAME") or release.get("VERSION_CODENAME", "")


def unpack_packages(packages: Sequence[str], directory: Path, *, more_suites: str | None = None) -> None:
    """Unpack packages, and all that they need and this machine lacks or has too old, into `directory`.

    `more_suites` is looked at beside the machine's own suites, and preferred.
    """
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        for name in ("lists/partial", "cache/archives/partial", "packages"):
            (work / name).mkdir(parents=True)
        (work / "apt.conf").write_text(CONFIG.format(work=work))
        sources = choose_sources(read_sources(), release_name(), more_suites)
        (work / "sources.sources").write_text(format_sources(sources))
        complaints = _complaints(_apt(work, ["update"]))
        options = ["--simulate", "--reinstall", "--no-install-recommends"]
        options += [] if more_suites is None else ["--target-release", more_suites]
        found = _apt(work, ["install", *options, *packages], complaints)
        wanted = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", found.stdout, re.MULTILINE)
        _apt(work, ["download", *(f"{name}={version}" for name, version in wanted)], complaints)
        for file in sorted((work / "packages").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", file, directory], check=True)


def read_sources(directory: Path = APT) -> list[Source]:
    """Return all entries of a machine's apt sources that are enabled and have binary packages."""
    sources: list[Source] = []
    for file in (directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))):
        if file.suffix == ".sources":
            sources += _read_paragraphs(file.read_text())
        elif file.suffix == ".list" and file.is_file():
            sources += _read_lines(file.read_text())
    return [each for each in sources if "deb" in each.get("types", "").split() and each.get("enabled") != "no"]


def choose_sources(sources: Sequence[Source], release: str, more_suites: str | None) -> list[Source]:
    """Return the entries of a release itself, and no others', with `more_suites` where its packages are."""
    own = {release, f"{release}-updates", f"{release}-security", f"{release}/updates"} | ALIASES
    chosen: list[Source] = []
    for source in sources:
        suites = [suite for suite in source.get("suites", "").split() if suite in own]
        if not suites or "main" not in source.get("components", "").split():
            continue
        if more_suites is not None and {release, *ALIASES} & set(suites):
            suites.append(more_suites)
        chosen.append({**source, "types": "deb", "suites": " ".join(suites), "components": "main"})
    if not chosen:
        raise DataError(
            f"{APT}: found no package sources of {release or 'Debian or Ubuntu'} among {len(sources)} entries"
        )
    return chosen


def format_sources(sources: Iterable[Source]) -> str:
    return "\n".join("".join(f"{name}: {value}\n" for name, value in source.items()) for source in sources)


def _read_paragraphs(text: str) -> list[Source]:
    """Read entries of several lines, one field each; a line that begins with a space continues the field before it."""
    sources: list[Source] = []
    text = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        fields = re.findall(r"^([^\s:]+):[ \t]*(.*(?:\n[ \t].*)*)", paragraph, re.MULTILINE)
        if fields:
            sources.append({name.lower(): value.strip() for name, value in fields})
    return sources


def _read_lines(text: str) -> list[Source]:
    """Read entries of one line: `deb [option=value ...] URI suite component ...`."""
    sources: list[Source] = []
    for line in text.splitlines():
        found = re.match(r"(deb)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if found is None or found[3].startswith("cdrom:"):
            continue
        source = {"types": found[1], "uris": found[3], "suites": found[4], "components": found[5].strip()}
        for option in (found[2] or "").split():
            name, _, value = option.partition("=")
            source[FIELDS.get(name.lower(), name.lower())] = value.replace(",", " ")
        sources.append(source)
    return sources


def _apt(work: Path, arguments: list[str], complaints: str = "") -> subprocess.CompletedProcess[str]:
    """Run apt-get; `complaints` are earlier ones, which may be the reason why this call fails."""
    command = ["apt-get", "--config-file", str(work / "apt.conf"), "--quiet", *arguments]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=work / "packages", env=environment, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"apt-get {' '.join(arguments)} failed: {_complaints(done)}{complaints}")
    return done


def _complaints(done: subprocess.CompletedProcess[str]) -> str:
    return "".join(f"{line} " for line in done.stderr.splitlines() if line[:2] in ("E:", "W:"))
