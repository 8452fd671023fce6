-- The runtime's tables.
--
-- `events` is the truth: each run's journal, append-only, in order. Everything else about a run
-- is a projection of it, written in the same transaction, so that questions (what is due? who
-- waits for this event? which runs belong to this customer?) are index look-ups.
--
-- Only the owner of a run appends to its journal. Others leave mail in `inbox`. The owner holds
-- the run by `owner` and `fence`: every claim raises the fence, and every append must name it.

CREATE TABLE runs (
  id           TEXT PRIMARY KEY,
  workflow     TEXT NOT NULL,
  version      TEXT NOT NULL,
  key          TEXT,               -- the caller's key: one run per workflow and key
  parent_id    TEXT,
  forked_from  TEXT,
  status       TEXT NOT NULL,
  due_at       REAL,               -- unowned runs: claimable from then on; NULL: not by itself
  owner        TEXT,               -- the worker that has it in memory
  fence        INTEGER NOT NULL DEFAULT 0,
  crashes      INTEGER NOT NULL DEFAULT 0,
  claim_seq    INTEGER NOT NULL DEFAULT 0,  -- journal length when it last changed hands
  run_limit    INTEGER,            -- at most so many runs of this workflow at once
  lane         TEXT,               -- and at most `lane_limit` of them with this lane
  lane_limit   INTEGER,
  first_message  INTEGER NOT NULL, -- messages with a lower id were there before the run
  created_at   REAL NOT NULL,
  started_at   REAL,
  finished_at  REAL,
  error        TEXT
);
CREATE UNIQUE INDEX runs_by_key ON runs (workflow, key) WHERE key IS NOT NULL;
CREATE INDEX runs_due ON runs (workflow, due_at)
  WHERE owner IS NULL AND status IN ('pending', 'waiting');
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_by_status ON runs (status, id);
CREATE INDEX runs_by_workflow ON runs (workflow, id);
CREATE INDEX runs_by_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_queued ON runs (workflow, lane, id) WHERE status = 'queued';
CREATE INDEX runs_under_way ON runs (workflow, lane)
  WHERE (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
    AND status IN ('pending', 'running', 'waiting', 'paused', 'stuck');

CREATE TABLE events (
  log     INTEGER PRIMARY KEY AUTOINCREMENT,  -- order over all runs; what live views resume from
  run_id  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  type    TEXT NOT NULL,
  key     TEXT NOT NULL,
  at      REAL NOT NULL,
  meta    TEXT NOT NULL,
  value   BLOB,
  blob    TEXT,                    -- instead of value: the hash of a row in blobs
  hash    BLOB NOT NULL            -- of all of the above: SQLite itself misses 3 of 4 bit flips
);
CREATE UNIQUE INDEX events_by_run ON events (run_id, seq);

CREATE TABLE blobs (
  run_id  TEXT NOT NULL,
  hash    TEXT NOT NULL,
  data    BLOB NOT NULL,
  PRIMARY KEY (run_id, hash)
) WITHOUT ROWID;

-- Open waits. `name` is the event's, or '@run/ID' for the end of a run.
CREATE TABLE waits (
  run_id  TEXT NOT NULL,
  key     TEXT NOT NULL,
  name    TEXT NOT NULL,
  lane    TEXT NOT NULL,           -- first field of the match, as field=value: narrows the search
  match   TEXT NOT NULL,
  PRIMARY KEY (run_id, key)
) WITHOUT ROWID;
CREATE INDEX waits_by_name ON waits (name, lane);

CREATE TABLE messages (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id  TEXT NOT NULL UNIQUE,  -- the sender's dedupe id
  name      TEXT NOT NULL,
  run_id    TEXT,                  -- for this run only
  payload   BLOB NOT NULL,
  at        REAL NOT NULL
);
CREATE INDEX messages_by_name ON messages (name, id);

-- Which run has taken which message: a run takes each at most once.
CREATE TABLE receipts (
  run_id   TEXT NOT NULL,
  message  INTEGER NOT NULL,
  PRIMARY KEY (run_id, message)
) WITHOUT ROWID;

-- What others want a run's owner to see: events that fit a wait, ended children, requests.
CREATE TABLE inbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id   TEXT NOT NULL,
  kind     TEXT NOT NULL,          -- event, ended, cancel, pause
  key      TEXT NOT NULL,          -- the wait it is for
  message  INTEGER,
  ref      TEXT                    -- the ended run
);
CREATE INDEX inbox_by_run ON inbox (run_id);

CREATE TABLE webhooks (
  token   TEXT PRIMARY KEY,
  run_id  TEXT NOT NULL,
  name    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE attributes (
  run_id  TEXT NOT NULL,
  name    TEXT NOT NULL,
  value   TEXT NOT NULL,           -- JSON
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
CREATE INDEX attributes_by_value ON attributes (name, value);

CREATE TABLE chunks (
  run_id   TEXT NOT NULL,
  stream   TEXT NOT NULL,
  idx      INTEGER NOT NULL,
  data     BLOB NOT NULL,
  at       REAL NOT NULL,
  step     TEXT NOT NULL,
  attempt  INTEGER NOT NULL,
  PRIMARY KEY (run_id, stream, idx)
) WITHOUT ROWID;

CREATE TABLE workers (
  id          TEXT PRIMARY KEY,
  pid         INTEGER NOT NULL,
  host        TEXT NOT NULL,
  started_at  REAL NOT NULL,
  expires_at  REAL NOT NULL
) WITHOUT ROWID;
