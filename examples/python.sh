# Sets PYTHON to a Python that has rewardlab: the repository's .venv if it is there, else python3. Sets EMBODIED_PATH,
# which configs may name, to examples/embodiment unless it is set. To be sourced.
EXAMPLES="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export EMBODIED_PATH="${EMBODIED_PATH:-$EXAMPLES/embodiment}"
PYTHON="$(dirname "$EXAMPLES")/.venv/bin/python"
[ -x "$PYTHON" ] || PYTHON=python3
"$PYTHON" -c 'import rewardlab.cli' 2>/dev/null || {
    echo "rewardlab is not installed for $PYTHON: run 'make install' in the repository, or 'pip install' it" >&2
    exit 1
}
