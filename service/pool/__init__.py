"""Worker processes, and the queue in front of them.

The *front end* is the one process with the event loop: it speaks HTTP, queues jobs and
passes bytes to the workers and back. Workers are forked from a *fork server* that holds
the compiled kernels; each works on one job at a time.
"""
