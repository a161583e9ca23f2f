"""The tables of the journal's SQLite file, and how those of older versions become them."""

from __future__ import annotations

SCHEMA_VERSION = 3
APPLICATION_ID = 0x6D696C6C  # "mill"
# Small commits write a fifth of what they do with 8,192, and large blocks cost 0.24 ms of CPU more; with 1,024 an
# eighth, but 0.6 ms (266 KB, insert, commit and checkpoint).
PAGE_SIZE = 2048
ERA_BITS = 16
"""Of a sequence. What was first heard of while its higher bits stayed the same is an era: memories are in the order of
eras, so that moving many at once touches pages of the newest only. The default window has 16; a new hash asks each."""

_TABLES = """
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL, marks INTEGER NOT NULL,
    message_id TEXT NOT NULL, received_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_MEMORY = """
CREATE TABLE changes (id INTEGER PRIMARY KEY, change BLOB NOT NULL);
CREATE TABLE blocks (
    era INTEGER NOT NULL, shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL,
    state INTEGER NOT NULL, nonce INTEGER, digest BLOB NOT NULL, first_sequence INTEGER NOT NULL,
    announced INTEGER NOT NULL, held_since INTEGER NOT NULL, PRIMARY KEY (era, shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    era INTEGER NOT NULL, topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL,
    sequence INTEGER NOT NULL, PRIMARY KEY (era, topic, shard, digest)) WITHOUT ROWID;
INSERT INTO facts VALUES ('horizon', 0);
"""
SCHEMA = _TABLES + _MEMORY
_FROM_VERSION_2 = f"""
ALTER TABLE blocks RENAME TO blocks_2;
ALTER TABLE contents RENAME TO contents_2;
DROP INDEX blocks_by_nonce;
DROP INDEX blocks_waiting;
{_MEMORY}
INSERT INTO blocks SELECT first_sequence >> {ERA_BITS}, * FROM blocks_2 ORDER BY 1, shard, hash;
INSERT INTO contents SELECT sequence >> {ERA_BITS}, * FROM contents_2 ORDER BY 1, topic, shard, digest;
DROP TABLE blocks_2;
DROP TABLE contents_2;
"""
_FROM_VERSION_1 = f"""
INSERT INTO facts SELECT 'counted', coalesce(max(sequence), 0) FROM events;
INSERT INTO facts SELECT 'bytes', coalesce(sum(size), 0) FROM events;
DROP INDEX events_sizes;
{_FROM_VERSION_2}
"""
OLDER = {1: _FROM_VERSION_1, 2: _FROM_VERSION_2}
"""How a journal of an older version is taken over. Pages keep their size: it is that of a new journal only."""
