"""The Python face of the runtime: vm.py runs functions, arguments.py and tensor.py bring values in and out.

    kept_call.py                       calls on tensors, kept from one to the next
    wants.py                           results into buffers, and state that stays
    profiler.py, kernel_work.py        where time goes, and what kernels do at least
    external.py                        runtimes of external code in Python
    logs.py, installation.py           the log, and what this installation is

reference.py has the instructions in Python: the oracle of native/src/interp.c.
"""
