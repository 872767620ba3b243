"""Reading wheels without unpacking them: structure, RECORD, members by content.

``archive`` reads the zip structure and refuses whatever two zip readers might read in two ways.
``index`` adds RECORD and METADATA and gives a ``WheelIndex``: each member's path, place in the
file, and SHA-256, in a form in which one path is found without reading the rest. ``content``
reads a member and verifies it; a RECORD that lies is found there, since nothing else reads the
bytes. ``record`` reads and writes RECORD, ``filename`` the names.

A wheel is hostile until all this is checked. Nothing here writes a file.
"""
