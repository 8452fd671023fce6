-- Schedules: what starts runs by the clock.
--
-- A row is changed by whoever has seen its `revision`, in the same transaction as the runs that a
-- firing starts: of any number of processes that see it due, one makes the firing.

CREATE TABLE schedules (
  name        text PRIMARY KEY,
  workflow    text NOT NULL,
  timing      text NOT NULL,
  input       bytea NOT NULL,
  created_at  double precision NOT NULL,
  overlap     text NOT NULL,
  catch_up    text NOT NULL,
  jitter      double precision NOT NULL,
  attributes  text NOT NULL,
  in_code     bigint NOT NULL,
  paused_at   double precision,
  next_at     double precision,
  due_at      double precision,               -- NULL: never by itself (paused, or no moment is left)
  last_at     double precision,
  last_run    text,
  queued      bigint NOT NULL,
  revision    bigint NOT NULL
);
CREATE INDEX schedules_due ON schedules (workflow, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_queued ON schedules (workflow) WHERE queued > 0 AND paused_at IS NULL;

CREATE TABLE firings (
  schedule    text NOT NULL,
  at          double precision NOT NULL,
  outcome     text NOT NULL,
  noted_at    double precision NOT NULL,
  run_id      text,
  until       double precision,
  error       text,
  PRIMARY KEY (schedule, at)
);
CREATE INDEX firings_queued ON firings (schedule, at) WHERE outcome = 'queued';
