#!/bin/sh
# Says in one line what this machine lacks to build the venv, with the command that brings it.
# Needs no Python. PYTHON names another interpreter than python3.
set -u

python=${PYTHON:-python3}
packages=
problem=

lack() {  # lack <what> <Debian package>
    problem="${problem:+$problem, }$1"
    packages="${packages:+$packages }$2"
}

headers_present() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
}

if ! command -v "$python" >/dev/null 2>&1; then
    lack "Python 3.11 or newer" "python3 python3-venv python3-dev"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "howdah: $("$python" --version 2>&1) is too old, 3.11 or newer is needed:" \
        "install one and run 'make setup PYTHON=/path/to/python3.11'" >&2
    exit 1
else
    "$python" -c 'import venv, ensurepip' 2>/dev/null || lack "venv with pip" python3-venv
    headers_present || lack "Python's C headers" python3-dev
fi

# python-qpid-proton comes as source only: its engine is compiled during the installation. With
# OpenSSL's headers it can do TLS: the gateway does without, as a client in tests it needs it.
if ! command -v "${CC:-cc}" >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
    lack "a C compiler" "gcc libc6-dev libssl-dev pkg-config"
fi

if [ -n "$problem" ]; then
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo="sudo "
    echo "howdah: this machine lacks $problem: run '${sudo}apt-get install -y $packages' and try again" >&2
    exit 1
fi
