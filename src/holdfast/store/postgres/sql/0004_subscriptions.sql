-- What workflows listen to: events that start their runs and cancel them.
--
-- Whoever sends a message leaves it for the workflows it fits, in the same transaction; what it
-- comes to is done in the transaction that takes it away.

CREATE TABLE subscriptions (
  workflow  text NOT NULL,
  event     text NOT NULL,
  action    text NOT NULL,       -- start or cancel
  match     text NOT NULL,       -- JSON: fields of the payload and their values
  key       text,                -- the field whose value is the run's key
  dealt     bigint NOT NULL,    -- written by who deals with messages: one at a time
  PRIMARY KEY (workflow, event)
);
CREATE INDEX subscriptions_by_event ON subscriptions (event);

CREATE TABLE subscription_news (
  workflow  text NOT NULL,
  message   bigint NOT NULL,
  PRIMARY KEY (workflow, message)
);
