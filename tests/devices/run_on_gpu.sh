#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in under five minutes on a fresh machine: the backend's calls, kernels,
# workloads and the conformance suite on it, and the table of docs/gpu.md, which is written with date and card.
#
# Needs a driver (nvidia-smi), python3 >= 3.11 with headers, gcc, make, ld. A PyTorch with CUDA that the python
# has is measured too. What the python lacks of the packages below is installed into a virtual environment, for which
# it needs venv and a network; on a machine without one, put their wheels (cffi and pycparser, say) into a folder.
# PYTHON=, VENV= (default .venv-gpu), WHEELS=folder. `python -m tests.devices.rehearsal` runs all this without a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv-gpu}
PAGE=${PAGE:-docs/gpu.md}
TABLE=${TABLE:-tests.devices.gpu_table}
PACKAGES="numpy cffi msgpack llvmlite typer rich pytest hypothesis pytest_timeout setuptools"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

# The packages that a python lacks, in a line; true if there is none.
lacks() {
  "$1" -c 'import importlib.util as util, sys
missing = [name for name in sys.argv[1:] if util.find_spec(name) is None]
print(*missing)
sys.exit(bool(missing))' $PACKAGES
}

step "set-up"
nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv
if [ -n "${WHEELS:-}" ]; then
  "$PYTHON" -m pip install -q --no-index --no-deps --upgrade --target .gpu-site "$WHEELS"/*.whl
  export PYTHONPATH="$PYTHONPATH:$PWD/.gpu-site"
fi
if missing=$(lacks "$PYTHON"); then
  "$PYTHON" native/build_ffi.py >build.log 2>&1 || { cat build.log >&2; exit 1; }
  rm -f build.log
else
  echo "$PYTHON has no $missing: into $VENV"
  sh tools/check_tools.sh "$PYTHON"
  [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv --system-site-packages "$VENV"
  PYTHON=$VENV/bin/python
  "$PYTHON" -m pip install -q --disable-pip-version-check -e '.[compiler,cli,test]'
fi

step "calls, kernels, workloads, conformance"
"$PYTHON" -m pytest -q -m gpu tests/devices/test_gpu.py -p no:cacheprovider -rs | tee gpu.log
if grep -q skipped gpu.log && grep -q "no CUDA driver" gpu.log; then
  echo "no test ran: there is no driver" >&2
  exit 1
fi
rm -f gpu.log
NVM_TEST_GPU=1 "$PYTHON" -m pytest -q tests/devices/conformance -k cuda -p no:cacheprovider

step "times"
"$PYTHON" -m "$TABLE" --times "$PAGE"
sed -n '/<!-- times -->/,/<!-- end of times -->/p' "$PAGE"
step "done; keep $PAGE"
