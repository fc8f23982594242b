"""What each operator computes. Importing the package imports every module in it: that fills the table of computes."""

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
