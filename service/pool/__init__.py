"""Worker processes, and the queue in front of them.

The *front end* is the process with the event loop: it speaks HTTP, queues jobs and passes bytes
to the workers and back. Where one is not enough, there are several (`service.front_ends`), each
with a pool of its own. Workers are forked from a *fork server* that holds
the compiled kernels; each works on one job at a time.
"""
