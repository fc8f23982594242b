"""Reports of profiles: a trace for Perfetto, and a page for a browser.

    vm = nvm.VirtualMachine(exe, profile="events")
    vm.run(x)
    nvm.profiling.write_trace(vm.profile(), "trace.json")
    nvm.profiling.write_page(vm.profile(), "profile.html", title="model.nvm")

`nimblevm profile` does so; docs/profiling.md says how to read them.
"""

from nimblevm.arguments import explain_arguments
from nimblevm.profiling.machine import Machine
from nimblevm.profiling.page import page, write_page
from nimblevm.profiling.timeline import Memory, Node, Span, Timeline, timeline
from nimblevm.profiling.trace import trace, write_trace
from nimblevm.vm.profiler import Profile

__all__ = [
    "Machine", "Memory", "Node", "Profile", "Span", "Timeline", "page", "timeline", "trace", "write_page",
    "write_trace",
]  # fmt: skip

explain_arguments(globals(), __all__)
