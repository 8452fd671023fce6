-- Early events, leases by a clock that does not jump, and a mark by which a store is known.

-- A wait is offered the messages it fits one after the other, oldest first: the next when the
-- last was refused. What was offered is remembered, so that nothing is looked at twice.
ALTER TABLE waits ADD COLUMN first_offer INTEGER;  -- the first message it was offered
ALTER TABLE waits ADD COLUMN last_offer INTEGER;   -- and the last one
UPDATE waits SET
  first_offer = (SELECT min(message) FROM inbox i
    WHERE i.run_id = waits.run_id AND i.key = waits.key AND kind = 'event'),
  last_offer = (SELECT max(message) FROM inbox i
    WHERE i.run_id = waits.run_id AND i.key = waits.key AND kind = 'event');

-- Up to where a run has taken every message that fits: the next wait of the kind begins there.
CREATE TABLE taken (
  run_id   TEXT NOT NULL,
  name     TEXT NOT NULL,
  match    TEXT NOT NULL,
  message  INTEGER NOT NULL,
  PRIMARY KEY (run_id, name, match)
) WITHOUT ROWID;

DROP INDEX messages_by_name;
CREATE INDEX messages_by_name ON messages (name, run_id, id);
DROP INDEX inbox_by_run;
CREATE INDEX inbox_by_run ON inbox (run_id, key);

-- A lease ends by the machine's clock that nobody can set. It begins anew with every boot, and with
-- the boot every lease has ended. `expires_at`, by the clock on the wall, is for show.
ALTER TABLE workers ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN lease_until REAL NOT NULL DEFAULT 0;

-- Which store this is, and how far it has come: one row. The second number is also kept in a
-- file beside the store, so that an older file in its place is noticed.
CREATE TABLE identity (
  id    TEXT NOT NULL,
  mark  INTEGER NOT NULL
);
INSERT INTO identity VALUES (lower(hex(randomblob(16))), 0);
