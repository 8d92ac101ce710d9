"""Leafcode's service: image labels and sparse codes over HTTP.

The way of a `POST /v1/classify`, from the socket to a worker and back:

 1. `http/protocol.py` reads the headers within limits of size and time, and writes the answer
    at once; `http/closing.py` is how its connections rest and end.
 2. `http/request_log.py` counts the request as under way (`in_flight.py`) and opens its record
    (`request_record.py`); a moment after the end, `observability/ended_requests.py` counts and
    logs it together with others.
 3. `http/body.py` limits its body.
 4. `routes/direct.py` finds `routes/classify.py`, which takes the parts of the running
    service (`context.py`), its parameters (`parameters.py`) and a model (`repository.py`).
 5. `pool/pool.py` makes it a job (`job.py`); `pool/dispatcher.py` queues it until a worker
    is idle, while `http/disconnect.py` watches whether the client is still there.
 6. `pool/worker_slot.py` sends it over `worker_link.py` as a frame (`frames.py`).
 7. In the worker process, `pool/worker.py` receives it and `pool/operations.py` has the
    engine do it and writes the JSON, which goes back the same way.

On a large machine, `front_ends/` has several processes do 1 to 6 side by side.
"""

__version__ = "0.1.0"
