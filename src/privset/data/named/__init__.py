"""Sets known by name: what is public about each, where its files are found, and how they are read."""
