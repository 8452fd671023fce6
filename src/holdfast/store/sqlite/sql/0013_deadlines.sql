-- Deadlines of runs: when one has to have ended, wherever it stands by then.
--
-- `timeout` is what the run was given, and what it is given again by a retry; `deadline` is the
-- moment that follows from it. A run that waits is due at its deadline at the latest (`due_at`);
-- one that is queued or paused is due at none, and is found by its deadline.

ALTER TABLE runs ADD COLUMN timeout REAL;
ALTER TABLE runs ADD COLUMN deadline REAL;
CREATE INDEX runs_by_deadline ON runs (workflow, deadline)
  WHERE deadline IS NOT NULL AND owner IS NULL AND status IN ('queued', 'paused');
