#!/usr/bin/env bash
# Sets up .venv and the JDK. `tools/setup.sh demo` installs what the program needs, `tools/setup.sh test` everything.
# `tools/setup.sh airflow` is for `make airflow`, which does without the browser.
# A stamp in .venv records what was installed, so that a second run with unchanged requirements does nothing.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "deferred: $*" >&2
    exit 1
}

# Install a Debian package if we are root; otherwise fail silently.
install_package() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing $1 with apt-get …"
    mkdir -p /usr/share/man/man1 # missing in slim images, but the JRE package needs it
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >/dev/null
}

find_python() {
    for candidate in python3.11 python3.12 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_environment() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    python=$(find_python) || fail "Python 3.11 or 3.12 is not on the PATH. Install it (on Debian: apt-get install python3.11 python3.11-venv)."
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_package "python$version-venv" ||
        fail "The module venv of Python $version is missing. Install it (on Debian: apt-get install python$version-venv)."
    echo "Creating .venv with Python $version …"
    "$python" -m venv --clear .venv
}

# install demo | test: the packages of requirements/, whose files must have the hashes stated there, then this one.
# The lists are complete, so nothing is resolved (--no-deps): a resolver would ask for newer releases of extras.
install() {
    stamp=.venv/.installed-$1
    wanted=$(cat setup.cfg pyproject.toml "requirements/$1.txt" | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
    echo "Installing Python packages into .venv (takes a few minutes the first time) …"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "requirements/$1.txt"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
    echo "$wanted" >"$stamp"
}

# Like Spark, prefer JAVA_HOME to the PATH.
java_fits() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    "$java" -version 2>&1 | grep -Eq 'version "(17|21)[."]'
}

check_java() {
    java_fits && return
    if [ -z "${JAVA_HOME:-}" ]; then
        install_package openjdk-17-jre-headless || install_package openjdk-21-jre-headless || true
        java_fits && return
    fi
    fail "Spark needs Java 17 or 21, and ${JAVA_HOME:-the PATH} has none. On Debian or Ubuntu: sudo apt-get install openjdk-17-jre-headless; elsewhere install a JDK 17 and set JAVA_HOME."
}

# The browser test drives Debian's Chromium; where it is missing and cannot be installed, that one test is skipped.
check_chromium() {
    command -v chromium >/dev/null || install_package chromium ||
        echo "deferred: Chromium is missing, so the browser test is skipped. Install it (on Debian: apt-get install chromium)." >&2
}

check_java
make_environment
case "${1:-}" in
    demo) if [ -e .venv/.installed-test ]; then install test; else install demo; fi ;;
    airflow) install test ;;
    test)
        install test
        check_chromium
        ;;
    *) fail "Usage: tools/setup.sh demo | airflow | test" ;;
esac
