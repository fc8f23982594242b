"""The file: its instructions and its format (docs/format.md).

    isa.py                             the instruction set, one table
    records.py, serialize.py           a program as plain records, and the bytes that they make
    executable.py                      a file's bytes, checked in C; types.py, adt.py, weights.py have what it tells
    assembler.py, disassembler.py      text <-> records; both walk the table
    describe.py, dim_lines.py, compare.py, code_sections.py      what tools tell about files

signature.py says who signed one.
"""
