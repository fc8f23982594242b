"""Dynamic models. Each module gives `text(...)` (the Relay program), `params(...)` (seeded weights) and
`reference(...)` (the same model in plain numpy, written independently of the compiler).
"""
