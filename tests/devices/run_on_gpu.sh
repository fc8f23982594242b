#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in under five minutes on a fresh machine: the backend's calls, kernels,
# workloads and the conformance suite on it, and the table of docs/gpu.md, which is written with date and card.
#
# Needs a driver (nvidia-smi), python3 >= 3.11 with headers and venv, gcc, make, ld. A PyTorch with CUDA that the python
# has is measured too. PYTHON=, VENV= (default .venv-gpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv-gpu}

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

step "set-up"
nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv
sh tools/check_tools.sh "$PYTHON"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv --system-site-packages "$VENV"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -e '.[compiler,cli,test]'

step "calls, kernels, workloads, conformance"
"$VENV/bin/python" -m pytest -q -m gpu tests/devices/test_gpu.py -p no:cacheprovider -rs | tee gpu.log
if grep -q skipped gpu.log && grep -q "no CUDA driver" gpu.log; then
  echo "no test ran: there is no driver" >&2
  exit 1
fi
rm -f gpu.log
NVM_TEST_GPU=1 "$VENV/bin/python" -m pytest -q tests/devices/conformance -k cuda -p no:cacheprovider

step "times"
"$VENV/bin/python" -m tests.devices.gpu_table --times docs/gpu.md
sed -n '/<!-- times -->/,/<!-- end of times -->/p' docs/gpu.md
step "done; keep docs/gpu.md"
