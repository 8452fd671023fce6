-- Runs that nobody may delete: kept for a reason, until somebody releases them.

CREATE TABLE holds (
  run_id   text PRIMARY KEY,
  reason   text NOT NULL,
  held_by  text NOT NULL,
  at       double precision NOT NULL
);
