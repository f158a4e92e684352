"""An app that imports a good part of the standard library, as a real one imports its frameworks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import csv
import ctypes
import decimal
import difflib
import email.message
import html.parser
import http.client
import http.server
import json
import logging.config
import multiprocessing
import pydoc
import smtplib
import sqlite3
import ssl
import statistics
import unittest
import urllib.request
import xml.dom.minidom
import xmlrpc.client
import zipfile

from covey import Covey

IMPORTED = (
    asyncio, concurrent.futures, csv, ctypes, decimal, difflib, email.message, html.parser, http.client, http.server,
    json, logging.config, multiprocessing, pydoc, smtplib, sqlite3, ssl, statistics, unittest, urllib.request,
    xml.dom.minidom, xmlrpc.client, zipfile,
)  # fmt: skip

app = Covey()


@app.task
def noop() -> None:
    pass
