# Sets PYTHON to a Python that has rewardlab: the repository's .venv if it is there, else python3. To be sourced.
PYTHON="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/python"
[ -x "$PYTHON" ] || PYTHON=python3
"$PYTHON" -c 'import rewardlab.cli' 2>/dev/null || {
    echo "rewardlab is not installed for $PYTHON: run 'make install' in the repository, or 'pip install' it" >&2
    exit 1
}
