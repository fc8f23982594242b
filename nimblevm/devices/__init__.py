"""Devices: which this build has (`available()`), and what is special about each (`devices.cpu`, `null`, `vta`)."""

from nimblevm.devices import cpu, null, vta
from nimblevm.devices.device import Backend, Device, available, backends

__all__ = ["Backend", "Device", "available", "backends", "cpu", "null", "vta"]
