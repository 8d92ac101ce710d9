"""What operators run against a service: the load generator, its report, and the soak test.

`generator` sends requests, `request` has their bytes, `plan` says how many and when,
`report` what became of them. `soak` kills workers, `reloads` publishes versions, `endurance`
does both for long, `flood` comes with bad clients and `chaos` with faults, all while requests go
on to a service that `processes` starts; `answers` judges what comes back.
"""
