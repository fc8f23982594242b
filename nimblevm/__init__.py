"""nimblevm: compile dynamic Relay programs to one file, run it on a register VM."""
