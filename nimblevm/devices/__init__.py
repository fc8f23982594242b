"""Devices: which this build has (`available()`), and what is special about some (`devices.cpu`, `devices.cuda` ...)."""

from nimblevm.devices import cpu, cuda, null, vta
from nimblevm.devices.device import Backend, Device, available, backends

__all__ = ["Backend", "Device", "available", "backends", "cpu", "cuda", "null", "vta"]
