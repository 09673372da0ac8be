"""One network on many devices: a mesh, and what lies where on it."""
