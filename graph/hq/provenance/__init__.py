"""Records and statements: what made what, from what, and why. Values in, JSON values out."""
