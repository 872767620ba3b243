"""Moving a series from one release of the wheel to the next: what fails, what moved, what to read.

The modules follow the question::

    tree      a release as paths, digests and contents; a release with changes on top
    replay    steps x tree -> outcomes       who wrote which line of the result
    outline   bytes -> definitions           functions and classes, and where they end
    triage    replay x two trees             the three lists of ``hq port triage``
    corpus    a tree's Python as one text    who calls it, who sets it
    program   modules, classes, signatures   what a name means in a tree, by syntax alone
    references  what own lines ask of the rest of the tree
    review    two programs -> findings       what no longer means what it did
    retire    replay x two trees             what upstream seems to carry now
    rebase    merges -> patches              a series made again for another tree
    diffs     two contents -> a patch file   header kept, places exact

Nothing is imported from the wheel and nothing runs: everything is read off the source text. Nothing
here touches a disk or a process; a merge or a diff of two texts is a function that is handed in.
"""
