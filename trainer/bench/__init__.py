"""`python -m trainer reproduce speed`: the engine and the service beside their peers.

`engine_figures` and `service_figures` have one function for each figure that is judged,
`peers` and `peer_servers` what they are compared with, `curves` how time grows, `stages`
where it goes and how far each stage is from what the hardware allows. `run` puts it
together, `report` and `plot` show it. Every figure is the median of several rounds.
"""
