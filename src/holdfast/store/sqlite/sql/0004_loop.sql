-- The agent loop's tables.

-- Steps that must not be begun twice: a tool that is not idempotent is noted here, on disk, before
-- it is called. Whoever finds a row made by another knows that the call was interrupted.
CREATE TABLE begun (
  run_id  TEXT NOT NULL,
  key     TEXT NOT NULL,
  at      REAL NOT NULL,
  PRIMARY KEY (run_id, key)
) WITHOUT ROWID;

-- Decisions that runs wait for. The row is the truth; the event that is sent with a decision only
-- wakes the run, which then reads the row.
CREATE TABLE approvals (
  id              TEXT PRIMARY KEY,
  run_id          TEXT NOT NULL,
  title           TEXT NOT NULL,
  tool            TEXT,
  arguments       TEXT NOT NULL,    -- JSON
  arguments_hash  TEXT NOT NULL,
  asked_of        TEXT NOT NULL,
  requested_at    REAL NOT NULL,
  expires_at      REAL NOT NULL,
  fallback        TEXT NOT NULL,    -- deny, approve, escalate
  escalated_from  TEXT,
  status          TEXT NOT NULL DEFAULT 'pending',
  decided_at      REAL,
  decided_by      TEXT,
  note            TEXT NOT NULL DEFAULT '',
  how             TEXT,             -- library, cli, http, webhook, timeout
  signature       TEXT,             -- of the decision: see loop/approval_signatures.py
  used_at         REAL,
  used_by         TEXT              -- the step that acted on it: no other may
) WITHOUT ROWID;
CREATE INDEX approvals_by_status ON approvals (status, id);
CREATE INDEX approvals_by_run ON approvals (run_id, id);

CREATE TABLE secrets (
  name   TEXT PRIMARY KEY,
  value  BLOB NOT NULL
) WITHOUT ROWID;
