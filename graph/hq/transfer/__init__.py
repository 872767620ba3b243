"""What reaches over the network: wheels by way of the user's own pip.

Only this package does. Nothing that it brings is believed before its SHA-256 was computed here.
"""
