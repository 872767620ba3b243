"""Debian packages as bytes: reading ``.deb`` files, and one root tree made of many of them.

``ar``, ``decompress`` and ``tar`` read the container (deb(5)); ``control`` and ``version`` the
fields (deb-control(5), deb-version(7)); ``package`` gives a package's index and its content,
compressed once for all images; ``root`` puts packages together by dpkg's rules; ``state`` and
``certificates`` make the files that maintainer scripts would have made. No script is ever run.
"""
