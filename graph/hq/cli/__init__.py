"""The command line: parses, calls ``hq.app``, renders. No logic lives here."""
