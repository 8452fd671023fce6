-- The last batch that each process has committed: what became of a commit whose answer was lost is
-- read here. A transaction's number would not do: after a failover to a server that never had it,
-- another transaction may have been given the same one.

CREATE TABLE batch_marks (
  id    text PRIMARY KEY,
  mark  bigint NOT NULL,
  at    double precision NOT NULL
) WITH (fillfactor = 50);
