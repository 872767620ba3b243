"""What two builds, two trees or one line prove: comparisons over records and bytes, nothing else.

Records (``hq.provenance.record``) and contents in, verdicts out; ``hq.app`` finds both and shows
the verdicts.
"""
