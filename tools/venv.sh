#!/bin/sh
# Makes .venv where there is none, and installs into it: sh tools/venv.sh PYTHON REQUIREMENT…
# A path is installed editable. What is missing is told in one sentence.
set -u
python=$1
shift

fail() {
    echo "iop: $1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 || fail "There is no $python here; install Python 3.11 or newer, or run: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; IOP needs 3.11 or newer. Run: make PYTHON=/path/to/python3"
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "Python's venv module is missing; on Debian and Ubuntu run: apt-get install python3-venv"
    echo "iop: making .venv with $("$python" --version)"
    "$python" -m venv .venv || fail "$python could not make a virtual environment in .venv."
fi
[ "$1" = "--no-deps" ] && what=$2 || what=$1
case $1 in
    .) what="IOP and its dependencies" ;;
    .\[*) what="IOP with its extras ${1#.}" ;;
esac
case $1 in .*) set -- --editable "$@" ;; esac
echo "iop: installing $what"
log=.venv/install.log
if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "$@" >"$log" 2>&1; then
    if grep -qiE "connection|name resolution|network is unreachable|timed out|max retries|proxy|from versions: none" "$log"; then
        fail "The package index cannot be reached, so $what cannot be installed; look at the network and at pip's configuration ($log)."
    fi
    if grep -qiE "no matching distribution|could not find a version" "$log"; then
        fail "The package index has no fitting $(grep -oiE '(requirement|distribution found for) [^ ]+' "$log" | head -n 1 | awk '{print $NF}') for this Python and machine ($log)."
    fi
    tail -n 5 "$log" >&2
    fail "pip could not install $what; all it said stands in $log."
fi
