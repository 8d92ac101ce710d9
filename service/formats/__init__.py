"""Bytes to arrays and back: request bodies and answers, without HTTP around them."""
