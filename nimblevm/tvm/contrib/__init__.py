"""tvm.contrib: graph_executor, which runs what relay.build made, and folders for scripts."""

from nimblevm.tvm.absent import explain_absent
from nimblevm.tvm.contrib import graph_executor, utils

__getattr__ = explain_absent(
    __name__,
    {
        "relay_viz": "mod.astext() prints a program; nimblevm inspect and disasm show what it became",
        "download": "fetch files with urllib.request",
        "debugger": "nvm.VirtualMachine(exe, profile=True) times kernels; relay.create_executor('debug') evaluates",
        "graph_runtime": "its name is graph_executor",
    },
)

__all__ = ["graph_executor", "utils"]
