-- Calls that wait for room in a budget, in the order they came, for all processes on this store.
--
-- A call has one row for each limited scope it counts against, all with the same number, and
-- begins when it fits and nobody with a lower number waits on any of them. Rows of a process
-- that died are removed by whoever finds them, as its calls are.

CREATE TABLE spend_queue (
  scope TEXT NOT NULL,
  number INTEGER NOT NULL,            -- the lower one goes first
  call_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (scope, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX spend_queue_by_owner ON spend_queue (owner);
CREATE INDEX spend_queue_by_call ON spend_queue (call_id);
