"""The running service, measured from outside: real processes, HTTP over loopback.

`load.py` makes requests, `processes.py` runs servers, `figures.py` has one function for
each figure that the service is judged by, `rivals.py` puts the same engine behind others'
servers, and `soak.py` kills workers while requests go on.
"""
