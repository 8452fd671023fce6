-- What a live run shows and answers, runs that go on as another, and runs that are deleted.

-- What a run has published: the last value of each name. The journal has them all.
CREATE TABLE published (
  run_id  TEXT NOT NULL,
  name    TEXT NOT NULL,
  value   BLOB NOT NULL,           -- JSON
  at      REAL NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

-- Updates: events with an answer. The event itself is in `messages`. An update belongs to a chain
-- of runs (the id of the first), so that whoever asks again is answered by whichever run has it.
CREATE TABLE updates (
  chain     TEXT NOT NULL,
  id        TEXT NOT NULL,         -- the sender's: the same is carried out once
  run_id    TEXT NOT NULL,         -- the run of the chain that has to answer it
  name      TEXT NOT NULL,
  status    TEXT NOT NULL,         -- pending, answered, rejected, unanswered
  sent_at   REAL NOT NULL,
  ended_at  REAL,
  value     BLOB,                  -- the answer, as JSON
  error     TEXT,                  -- why it was rejected or not answered, as JSON
  PRIMARY KEY (chain, id)
) WITHOUT ROWID;
CREATE INDEX updates_by_run ON updates (run_id, status);

-- A run that ends by going on as a new one hands its key on. So does an ended run whose key is
-- used to start anew.
ALTER TABLE runs ADD COLUMN chain TEXT;           -- the first run of the chain; NULL: there is none
ALTER TABLE runs ADD COLUMN continued_from TEXT;
ALTER TABLE runs ADD COLUMN continued_as TEXT;
ALTER TABLE runs ADD COLUMN replaced_by TEXT;     -- the run that has its key now
DROP INDEX runs_by_key;
CREATE UNIQUE INDEX runs_by_key ON runs (workflow, key)
  WHERE key IS NOT NULL AND continued_as IS NULL AND replaced_by IS NULL;
CREATE INDEX runs_by_chain ON runs (chain) WHERE chain IS NOT NULL;

-- Runs whose row is gone and whose other rows are still being removed, some at a time.
CREATE TABLE deleted (
  run_id  TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE INDEX messages_by_run ON messages (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX inbox_by_ref ON inbox (ref) WHERE ref IS NOT NULL;
