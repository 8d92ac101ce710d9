"""Faults that are injected into a service under load, one after the other, each by its name.

`fault` says what a fault is, `experiment` runs one, `catalogue` lists them; `of_processes`,
`of_machine` and `of_bundles` are the faults themselves. No fault needs a hook in the service:
signals, limits, full disks and another clock come from outside.
"""
