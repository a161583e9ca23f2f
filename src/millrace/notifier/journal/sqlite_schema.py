"""The tables of the rules' memory, and how that of an older journal is taken over."""

from __future__ import annotations

SCHEMA_VERSION = 4
APPLICATION_ID = 0x6D696C6C  # "mill"
ERA_BITS = 16
"""Of a sequence. What was first heard of while its higher bits stayed the same is an era: memories are in the order of
eras, so that moving many at once touches pages of the newest only. The default window has 16; a new hash asks each."""

_TABLES = """
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_MEMORY = """
CREATE TABLE blocks (
    era INTEGER NOT NULL, shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL,
    state INTEGER NOT NULL, nonce INTEGER, digest BLOB NOT NULL, first_sequence INTEGER NOT NULL,
    announced INTEGER NOT NULL, held_since INTEGER NOT NULL, PRIMARY KEY (era, shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    era INTEGER NOT NULL, topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL,
    sequence INTEGER NOT NULL, PRIMARY KEY (era, topic, shard, digest)) WITHOUT ROWID;
"""
SCHEMA = _TABLES + _MEMORY

# Journals of the formats 1 to 3 had their events in this database, too. From 3 on blocks and contents have their era.
FROM_ERAS = """
INSERT INTO new.blocks SELECT * FROM main.blocks;
INSERT INTO new.contents SELECT * FROM main.contents;
"""
FROM_NO_ERAS = f"""
INSERT INTO new.blocks SELECT first_sequence >> {ERA_BITS}, * FROM main.blocks ORDER BY 1, shard, hash;
INSERT INTO new.contents SELECT sequence >> {ERA_BITS}, * FROM main.contents ORDER BY 1, topic, shard, digest;
"""
FROM_ANY = """
INSERT INTO new.latest SELECT * FROM main.latest;
INSERT INTO new.shards SELECT * FROM main.shards;
"""
OLDER = {1: FROM_NO_ERAS, 2: FROM_NO_ERAS, 3: FROM_ERAS}
