"""From an IRModule to the records of a file. Where to begin:

    pipeline.py             which passes run, in order; each is a file of passes/
    pass_base.py            what a pass is; transform.py has passes as users write them
    emit.py                 the module in its last form -> records; emit_function.py, emit_match.py, emit_ops.py write
                            code on emit_frame.py's registers, liveness.py and op_class.py say what they need to know
    kernel_table.py         fused functions -> kernels (nimblevm/kernels), each distinct one once

What passes share:

    rewriting               rewrite, copying, constants, dataflow, unfold, function_blocks
    dims and sizes          dim_notes, dim_report, dyn_lowering, shape_values
    loops and trees         loops, row_lift, tree_walk, home_blocks, block_tree
    products, convolutions  packed_rows, shared_panels, channels_last, tuned_products
    quantized tensors       qnn_lowering, qnn_products, qnn_terms
    fusion                  fusion, fuse_attention, kernel_key
    devices                 devices, domains, device_*: constraints, the choice, what it changes
    external codegen        external, annotated, region, block_dag
    memory                  storage
    what a file can hold    limits, type_table

They are grouped here as passes use them; each file says at its top what it does.
"""
