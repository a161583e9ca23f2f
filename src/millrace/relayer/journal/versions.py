"""Files of the journal that earlier versions wrote, brought up to date when they are opened."""

from __future__ import annotations

import logging
import sqlite3

from millrace.relayer.journal import outcomes, submissions
from millrace.relayer.journal.advice import UnknownVersion

log = logging.getLogger(__name__)

VERSION = 6
"""1 kept the hash of the bytes to be signed; 1 and 2 kept rows by sender, with our signature inside the transaction;
3 had no chain; 4 no programmes; 5 kept outcomes by their hash."""

_META = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

_TAG = "x'8a0140'"
"""What stands before a relayer's signature, the last field of a co-signed transaction in protobuf form …"""
_SIZE = 67
"""… which takes so many bytes."""


def bring_up_to_date(connection: sqlite3.Connection) -> str:
    """Make a file of version 1 or 2 one of version 3, in one commit; what makes one of this version from that or later.

    Raises `sqlite3.Error`. `check_known` comes first.
    """
    connection.execute(_META)
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(VERSION),))
    (found,) = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    if found in ("1", "2"):
        log.info("bringing the journal up to date")
        if not connection.execute("SELECT 1 FROM meta WHERE name = 'signed_once'").fetchone():
            _mend_signed_twice(connection)
        connection.executescript(_FROM_2)
        found = "3"
    if found == str(VERSION):
        return ""
    has_outcomes = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'outcomes'").fetchone()
    return (_FROM_3 if found == "3" else "") + (_FROM_5 if has_outcomes else "") + _TO_THIS


def check_known(connection: sqlite3.Connection) -> None:
    """Whether a file is of a version this one can read, or new. Raises `sqlite3.Error`."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return
    for (found,) in connection.execute("SELECT value FROM meta WHERE name = 'schema'"):
        if not found.isdecimal() or not 1 <= int(found) <= VERSION:
            raise UnknownVersion(
                f"the journal was written by another version (schema {found}, this one knows {VERSION})"
            )


_TO_THIS = f"UPDATE meta SET value = '{VERSION}' WHERE name = 'schema';"
_FROM_3 = "DROP TRIGGER IF EXISTS signatures_go_with_submissions;"
_FROM_5 = f"""
{outcomes.SCHEMA}
INSERT INTO results SELECT id, time_ms, contract, function, outcomes.cost, failed
    FROM submissions CROSS JOIN outcomes USING (client_hash);
DROP TABLE outcomes;
"""
_FROM_2 = f"""
BEGIN IMMEDIATE;
ALTER TABLE submissions RENAME TO submissions_2;
{submissions.SCHEMA}
CREATE TEMP VIEW signed_2 AS SELECT *, relayer IS NOT NULL AND chain_hash IS NOT NULL AS is_signed FROM submissions_2;
INSERT INTO submissions ({submissions.COLUMNS}, ended_ms)
    SELECT {submissions.COLUMNS.replace("tx", f"iif(is_signed, substr(tx, 1, length(tx) - {_SIZE}), tx)")}, ended_ms
    FROM signed_2 ORDER BY created_ms, nonce;
INSERT INTO signatures SELECT id, substr(signed_2.tx, -64) FROM signed_2 JOIN submissions USING (sender, nonce)
    WHERE is_signed ORDER BY id;
DROP VIEW signed_2;
DROP TABLE submissions_2;
DELETE FROM meta WHERE name = 'signed_once';
UPDATE meta SET value = '3' WHERE name = 'schema';
COMMIT;
"""


def _mend_signed_twice(connection: sqlite3.Connection) -> None:
    """Where an earlier version put a signature twice behind the same transaction, one is enough.

    To the chain they are one transaction.
    """
    mend = (
        "UPDATE submissions SET tx = substr(tx, 1, length(tx) - :size) "
        f"WHERE relayer IS NOT NULL AND length(tx) > 2 * :size AND substr(tx, -:size, 3) = {_TAG} "
        "AND substr(tx, -:size) = substr(tx, -2 * :size, :size)"
    )
    while connection.execute(mend, {"size": _SIZE}).rowcount:  # each statement is a commit of its own
        pass
