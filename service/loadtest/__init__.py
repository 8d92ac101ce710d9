"""What operators run against a service: the load generator, its report, and the soak test.

`generator` sends requests, `request` has their bytes, `plan` says how many and when,
`report` what became of them. `soak` kills workers and `reloads` publishes versions while
requests go on, both against a service that `processes` starts.
"""
