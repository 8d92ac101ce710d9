"""Several front ends for one service, where one event loop does not feed all workers.

A small *parent* binds the listening socket, starts the front ends, watches, reloads and stops
them. Each front end is the whole service in small: event loop, queue, fork server and its share of
the pinned workers. They inherit the socket, so that a connection which nobody has accepted yet is
lost with none of them, and take turns at accepting (`acceptor.py`). The parent and each front end
talk in lines of JSON over a socket pair (`lines.py`), through which a front end also asks the
others (`link.py`) and learns when all have loaded a version (`agreement.py`).
"""
