"""Devices: which this build has (`available()`), and what is special about each (`devices.cpu`, `devices.null`)."""

from nimblevm.devices import cpu, null
from nimblevm.devices.device import Backend, Device, available, backends

__all__ = ["Backend", "Device", "available", "backends", "cpu", "null"]
