"""OCI images as bytes: tar entries, layers, configurations, manifests, layouts.

``tar`` makes deterministic headers, ``arrange`` puts a layer's items in order, ``encode`` and
``layer`` write a layer as a stream, ``image`` makes the JSON documents, and ``layout`` checks a
finished image layout. Nothing here opens a file: layers go into a ``BlobWriter``, documents are
bytes, and a layout is read through a function.
"""
