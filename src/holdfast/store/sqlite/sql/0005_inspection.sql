-- What the inspector needs to answer at once, however many runs and calls there are.
--
-- How many runs there are of each workflow in each status is kept, not counted: the triggers
-- change one small row with the run's own.

CREATE TABLE run_counts (
  workflow  TEXT NOT NULL,
  status    TEXT NOT NULL,
  runs      INTEGER NOT NULL,
  PRIMARY KEY (workflow, status)
) WITHOUT ROWID;
INSERT INTO run_counts SELECT workflow, status, count(*) FROM runs GROUP BY workflow, status;

CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
  INSERT INTO run_counts VALUES (new.workflow, new.status, 1)
    ON CONFLICT DO UPDATE SET runs = runs + 1;
END;
CREATE TRIGGER runs_recounted AFTER UPDATE OF status ON runs WHEN old.status <> new.status BEGIN
  UPDATE run_counts SET runs = runs - 1 WHERE workflow = old.workflow AND status = old.status;
  INSERT INTO run_counts VALUES (new.workflow, new.status, 1)
    ON CONFLICT DO UPDATE SET runs = runs + 1;
END;
CREATE TRIGGER runs_uncounted AFTER DELETE ON runs BEGIN
  UPDATE run_counts SET runs = runs - 1 WHERE workflow = old.workflow AND status = old.status;
END;

-- A narrow span of time: ids sort by time too, but a child's sorts beside its parent's.
CREATE INDEX runs_by_time ON runs (created_at);
CREATE INDEX runs_by_workflow_and_status ON runs (workflow, status, id);

-- Everything that is summed up about calls, so that their prompts are not read on the way.
CREATE INDEX calls_summed ON calls (started_at, model, provider, status, latency, cost,
  input_tokens, cached_tokens, output_tokens);
CREATE INDEX calls_by_model ON calls (model, started_at);
