"""What operators run against a service: the load generator, its report, and the soak test.

`options` and `command` are the load test. `generator` sends requests over `connections`,
`request` has their bytes and `inputs` what is in them, `plan` says how many and when; what
became of them is a `load`, which `report` tells and `plot` draws, `ramp` of rising rates.

`soak` kills workers, `reloads` publishes versions, `endurance` does both for long, `flood` comes
with bad clients and `chaos` with faults, all while requests go on to a service that `processes`
starts; `answers` judges what comes back.
"""
