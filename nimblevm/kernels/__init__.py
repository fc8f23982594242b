"""From a fused Relay function to machine code. The way of a kernel:

    lower.py                what each operator computes (compute/<op>.py, by tensor_expr.py and expr.py) -> loop IR
    loop_ir.py              the loop IR, unscheduled: what the file keeps (loop_ir_form.py) and C interprets
    schedule/               loop IR -> loop IR as a machine runs it best; variants.py and tune.py choose between ways
    llvm.py, llvm_*.py      loop IR -> LLVM text -> object code; link.py makes one shared object of it
    opencl.py, ptx.py       launches of grids -> code for GPUs

Groups that run more than once: repeat.py (steps of a loop), levels.py (levels of a tree), ahead.py (what steps need
not wait for). Kernels written in C: c_kernels.py is their table, c_rules.py says for which operators. math_table.py has
exp, tanh and the others, one definition for C, loop IR and LLVM. loop_ir_eval.py is the oracle of all generated code.
"""
