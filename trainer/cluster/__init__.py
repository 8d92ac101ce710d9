"""Past one machine: the functions of this trainer, run by the workers of a Dask cluster."""
