"""One module per command: ``configure`` declares its arguments, ``run`` does it."""
