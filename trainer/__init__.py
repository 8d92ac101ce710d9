"""Leafcode's offline half: from a folder of images to a bundle."""
