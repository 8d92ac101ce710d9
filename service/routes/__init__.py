"""The calls that the service answers, one module for each family; thin."""
