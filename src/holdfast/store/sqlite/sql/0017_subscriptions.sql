-- What workflows listen to: events that start their runs and cancel them.
--
-- Whoever sends a message leaves it for the workflows it fits, in the same transaction; what it
-- comes to is done in the transaction that takes it away.

CREATE TABLE subscriptions (
  workflow  TEXT NOT NULL,
  event     TEXT NOT NULL,
  action    TEXT NOT NULL,       -- start or cancel
  match     TEXT NOT NULL,       -- JSON: fields of the payload and their values
  key       TEXT,                -- the field whose value is the run's key
  dealt     INTEGER NOT NULL,    -- written by who deals with messages: one at a time
  PRIMARY KEY (workflow, event)
) WITHOUT ROWID;
CREATE INDEX subscriptions_by_event ON subscriptions (event);

CREATE TABLE subscription_news (
  workflow  TEXT NOT NULL,
  message   INTEGER NOT NULL,
  PRIMARY KEY (workflow, message)
) WITHOUT ROWID;
