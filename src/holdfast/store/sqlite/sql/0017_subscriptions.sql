-- What workflows listen to: events that start their runs and cancel them.
--
-- `seen` moves in the transaction that does what the messages up to it come to.

CREATE TABLE subscriptions (
  workflow  TEXT PRIMARY KEY,
  events    TEXT NOT NULL,       -- JSON: by the event's name, what it does
  seen      INTEGER NOT NULL     -- the last message that was dealt with
) WITHOUT ROWID;
