"""Structured dictionary learning with given groups (section 2.1)."""
