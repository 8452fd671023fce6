-- Flow control: how many runs begin in a stretch of time, in which order, and starts that are
-- gathered in one run.

ALTER TABLE runs ADD COLUMN pace TEXT;      -- JSON: how many may begin; NULL: as many as like
ALTER TABLE runs ADD COLUMN queue_at REAL;  -- its place in the queue: when it came, less its priority
ALTER TABLE runs ADD COLUMN gather TEXT;    -- starts with this key go into it until it has begun

UPDATE runs SET queue_at = created_at WHERE run_limit IS NOT NULL OR lane_limit IS NOT NULL;
DROP INDEX runs_queued;
CREATE INDEX runs_queued ON runs (workflow, lane, queue_at) WHERE status = 'queued';
CREATE INDEX runs_gathering ON runs (workflow, gather)
  WHERE gather IS NOT NULL AND status = 'pending';

-- What has begun (or was started) lately, by lane: rates are counted here, and lanes take turns by
-- it. The last of a lane is kept a day longer than it counts.
CREATE TABLE turns (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  workflow  TEXT NOT NULL,
  kind      TEXT NOT NULL,      -- begun or started
  lane      TEXT NOT NULL,      -- '' without one
  at        REAL NOT NULL,
  until     REAL NOT NULL       -- it counts for rates up to here
);
CREATE INDEX turns_by_lane ON turns (workflow, kind, lane, id);
CREATE INDEX turns_by_workflow ON turns (workflow, kind, id);
CREATE INDEX turns_by_end ON turns (until);

-- Workflows with runs in the queue that wait for time to pass.
CREATE TABLE next_turns (
  workflow  TEXT PRIMARY KEY,
  at        REAL NOT NULL
) WITHOUT ROWID;
