-- Schedules: what starts runs by the clock.
--
-- A row is changed by whoever has seen its `revision`, in the same transaction as the runs that a
-- firing starts: of any number of processes that see it due, one makes the firing.

CREATE TABLE schedules (
  name        TEXT PRIMARY KEY,
  workflow    TEXT NOT NULL,
  timing      TEXT NOT NULL,
  input       BLOB NOT NULL,
  created_at  REAL NOT NULL,
  overlap     TEXT NOT NULL,
  catch_up    TEXT NOT NULL,
  jitter      REAL NOT NULL,
  attributes  TEXT NOT NULL,
  in_code     INTEGER NOT NULL,
  paused_at   REAL,
  next_at     REAL,
  due_at      REAL,               -- NULL: never by itself (paused, or no moment is left)
  last_at     REAL,
  last_run    TEXT,
  queued      INTEGER NOT NULL,
  revision    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (workflow, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_queued ON schedules (workflow) WHERE queued > 0 AND paused_at IS NULL;

CREATE TABLE firings (
  schedule    TEXT NOT NULL,
  at          REAL NOT NULL,
  outcome     TEXT NOT NULL,
  noted_at    REAL NOT NULL,
  run_id      TEXT,
  until       REAL,
  error       TEXT,
  PRIMARY KEY (schedule, at)
) WITHOUT ROWID;
CREATE INDEX firings_queued ON firings (schedule, at) WHERE outcome = 'queued';
