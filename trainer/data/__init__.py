"""Images and descriptors to train on."""
