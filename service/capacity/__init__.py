"""How many requests a second front ends hand out, whatever the workers could do.

`python -m service capacity` serves with real front ends and real workers, which wait as long as an
image would take and do nothing else. So it needs no more cores than the front ends.
"""
