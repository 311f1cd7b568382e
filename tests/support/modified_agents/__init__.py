"""`penstock` with one deliberate change. These programs run by path, so no module here has a package's name."""
