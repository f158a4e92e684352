"""Bytes that are named by their SHA-256: kept, checked, sent, and put in place as files.

scan        declared files of a run: paths checked, patterns found, contents and signatures
blob_store  what every place for blobs can do
directory   blobs in a directory
http        blobs behind a URL
placing     outputs of a run put in place, all or none
"""
