-- Runs that nobody may delete: kept for a reason, until somebody releases them.

CREATE TABLE holds (
  run_id   TEXT PRIMARY KEY,
  reason   TEXT NOT NULL,
  held_by  TEXT NOT NULL,
  at       REAL NOT NULL
) WITHOUT ROWID;
