"""Commands for people at a terminal: images in, labels out, without a server."""
