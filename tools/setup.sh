#!/usr/bin/env bash
# Makes .venv and the JDK ready. `tools/setup.sh demo` installs what the program needs, `tools/setup.sh test` everything.
# `tools/setup.sh airflow` is for `make airflow`, which does without the browser.
# What was installed is written into .venv, so that a second run with an unchanged setup.cfg does nothing.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "deferred: $*" >&2
    exit 1
}

# Install a Debian package when we may; otherwise say nothing and fail.
install_package() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing $1 with apt-get …"
    mkdir -p /usr/share/man/man1 # slim images lack it, and the JRE's alternatives point there
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
    python=$(find_python) || fail "Python 3.11 or 3.12 is needed and not on the PATH (on Debian: apt-get install python3.11 python3.11-venv)"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_package "python$version-venv" ||
        fail "the module venv of Python $version is missing: apt-get install python$version-venv"
    echo "Making .venv with Python $version …"
    "$python" -m venv --clear .venv
}

# install STAMP REQUIREMENT
install() {
    stamp=.venv/.installed-$1
    wanted=$(cat setup.cfg pyproject.toml | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
    echo "Installing Python packages into .venv (some minutes the first time) …"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e "$2"
    echo "$wanted" >"$stamp"
}

# Spark takes JAVA_HOME before the PATH, and so do we.
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
    fail "Spark needs Java 17 or 21, and ${JAVA_HOME:-the PATH} has none. On Debian or Ubuntu: sudo apt-get install openjdk-17-jre-headless; elsewhere install a JDK 17 and set JAVA_HOME"
}

# The browser test drives Debian's Chromium; where it is missing and cannot be installed, that one test is skipped.
check_chromium() {
    command -v chromium >/dev/null || install_package chromium ||
        echo "deferred: chromium is missing, so the browser test is skipped (on Debian: apt-get install chromium)" >&2
}

everything=".[airflow,postgres,dev]"
check_java
make_environment
case "${1:-}" in
    demo) if [ -e .venv/.installed-test ]; then install test "$everything"; else install demo .; fi ;;
    airflow) install test "$everything" ;;
    test)
        install test "$everything"
        check_chromium
        ;;
    *) fail "usage: tools/setup.sh demo | airflow | test" ;;
esac
