"""Labels of very many images, on all cores of a machine or on many machines, without HTTP."""
