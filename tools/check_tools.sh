#!/bin/sh
# Says which system packages are missing, with the one line that installs them. Reads nothing from the terminal.
python=${1:-python3}
missing=""
command -v "$python" >/dev/null 2>&1 || { echo "$python is missing: apt-get install -y python3 python3-dev python3-venv gcc make binutils" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed, $("$python" -V) was found (set PYTHON=...)" >&2; exit 1; }
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing="$missing python3-dev"
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || missing="$missing gcc"
command -v ld >/dev/null 2>&1 || missing="$missing binutils"
[ -z "$missing" ] || { echo "missing system packages; run: apt-get install -y$missing" >&2; exit 1; }
