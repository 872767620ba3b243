"""Patches and quilt series, on bytes: read, place, apply, explain.

The modules follow the data::

    parse   bytes -> Patch          header fields, sections, hunks; every refusal with its line
    place   lines x hunks -> Placed where each hunk goes, as a closed set of outcomes
    apply   Patch x tree -> PatchOutcome    whole patch or nothing; the tree is only read
    report  PatchOutcome -> plain JSON      the ``hq.series/1`` document
    explain PatchOutcome -> HqError         the same for people
    series  quilt's ``series`` file; a series applied patch by patch
    lint    what a header must say; the ledger

Nothing here touches a disk. A tree is a function from a path to a ``File`` or ``None``.

GNU patch and ``git apply`` are the peers. Where they agree, this engine gives the same bytes or
refuses; it never places a hunk by dropping context, never picks one of several equally good places
by distance alone, and never puts the same change in twice (docs/reference/patches.md).
"""
