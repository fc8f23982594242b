"""Workloads and benchmarks: dynamic models as Relay programs, with independent numpy implementations."""
