-- Which runs hold a place under their workflow's limits, and which have begun.
--
-- Admission is a state of its own: a paused run may hold a place (it was under way) or not (it
-- was queued, or delayed). Runs are admitted oldest first, by rowid: ids sort by the millisecond
-- alone, and the order in which rows were made is the true order.

ALTER TABLE runs ADD COLUMN admitted INTEGER NOT NULL DEFAULT 1;  -- holds a place; 1 without limits
ALTER TABLE runs ADD COLUMN begun_at REAL;  -- first taken up since it was made or last retried

UPDATE runs SET begun_at = started_at WHERE status NOT IN ('queued', 'pending');
UPDATE runs SET admitted = 0
  WHERE (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
    AND (status = 'queued' OR (status = 'paused' AND started_at IS NULL));

DROP INDEX runs_queued;
CREATE INDEX runs_queued ON runs (workflow, lane) WHERE status = 'queued';
DROP INDEX runs_under_way;
CREATE INDEX runs_under_way ON runs (workflow, lane)
  WHERE (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
    AND admitted = 1 AND finished_at IS NULL;
