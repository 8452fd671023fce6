-- The gateway's tables: every model call, what each budget scope has spent, and who may call.
--
-- A call is written as `started` before its first byte is sent and changed once, when it ends.
-- Money is whole nanodollars, so that sums are exact. `spend` holds one row per scope with what
-- is spent and what calls in flight hold; both change in the same transaction as their call, so
-- spent + held is never less than what may have been bought. A call keeps its own hold and
-- scopes, which is all that is needed to settle it when its process has died.

CREATE TABLE calls (
  id TEXT PRIMARY KEY,
  status TEXT NOT NULL,               -- started, completed, failed, interrupted, unknown
  key TEXT,                           -- hash of the caller's idempotency key
  request_hash TEXT NOT NULL,
  owner TEXT NOT NULL,                -- the process that makes the call
  model TEXT NOT NULL,                -- as asked for
  format TEXT NOT NULL,
  run_id TEXT, workflow TEXT, step TEXT, step_key TEXT, attempt INTEGER,
  api_key TEXT,
  tags TEXT NOT NULL,                 -- JSON
  scopes TEXT NOT NULL,               -- JSON: every budget scope the call counts against
  held_usd INTEGER NOT NULL,
  held_tokens INTEGER NOT NULL,
  started_at REAL NOT NULL,
  finished_at REAL,
  provider TEXT, served TEXT, finish TEXT,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  cached_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  estimated INTEGER NOT NULL DEFAULT 0,
  cost INTEGER,                       -- NULL: the price is unknown
  charge INTEGER NOT NULL DEFAULT 0,  -- counted against budgets: the cost, or its worst case
  charge_tokens INTEGER NOT NULL DEFAULT 0,
  prices TEXT,                        -- JSON: unit prices and the version of their data
  latency REAL NOT NULL DEFAULT 0,
  first_token REAL,
  attempts TEXT NOT NULL DEFAULT '[]',
  error TEXT, message TEXT,
  prompt TEXT, reply TEXT             -- JSON, redacted; NULL when content is not kept
) STRICT;

-- One live call per key; a failed one makes room for the next try.
CREATE UNIQUE INDEX calls_by_key ON calls (key)
  WHERE key IS NOT NULL AND status IN ('started', 'completed', 'unknown');
CREATE INDEX calls_by_run ON calls (run_id, started_at) WHERE run_id IS NOT NULL;
CREATE INDEX calls_by_time ON calls (started_at);
CREATE INDEX calls_in_flight ON calls (owner) WHERE status = 'started';

-- The whole reply of a finished call with a key, for whoever asks with the same key and request.
-- Sealed with a key made of both, so that what redaction keeps out of `calls` is not here either.
CREATE TABLE call_replays (
  call_id TEXT PRIMARY KEY REFERENCES calls (id),
  sealed BLOB NOT NULL,
  expires_at REAL NOT NULL
) STRICT;
CREATE INDEX call_replays_by_expiry ON call_replays (expires_at);

CREATE TABLE spend (
  scope TEXT PRIMARY KEY,             -- run:…, workflow:…, tag:…, key:…, day:…
  usd INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  calls INTEGER NOT NULL DEFAULT 0,
  held_usd INTEGER NOT NULL DEFAULT 0,
  held_tokens INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE spend_limits (
  scope TEXT PRIMARY KEY,
  usd INTEGER,
  tokens INTEGER
) STRICT, WITHOUT ROWID;

-- A child run's calls count against its parent's scope too, and so on upwards.
CREATE TABLE spend_parents (
  child TEXT PRIMARY KEY,
  parent TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Processes that make calls. Each holds a lock on a file of its name beside the store for as
-- long as it lives; the kernel lets go of it however the process ends.
CREATE TABLE call_owners (
  id TEXT PRIMARY KEY,
  pid INTEGER NOT NULL,
  started_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE virtual_keys (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE,
  created_at REAL NOT NULL,
  expires_at REAL,
  revoked_at REAL,
  models TEXT NOT NULL,               -- JSON patterns; [] means every model
  run_id TEXT,
  tags TEXT NOT NULL
) STRICT, WITHOUT ROWID;
