-- What sandboxes did: each sandbox, each command in it, each attempt to reach the network.
--
-- Records, not promises: rows are written in batches a moment after the fact, so the last few
-- milliseconds before a kill may be missing. `owner` is the process that has the sandbox or
-- command in hand; it holds a lock on a file of its name beside the store, which the kernel lets
-- go of however it ends, so that what it left open is found and closed as "process died".

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  backend TEXT NOT NULL,
  isolation TEXT NOT NULL,
  runtime TEXT NOT NULL,
  timeout REAL NOT NULL,
  cpus REAL NOT NULL,
  memory INTEGER NOT NULL,
  disk INTEGER NOT NULL,
  pids INTEGER NOT NULL,
  network TEXT NOT NULL,              -- JSON: name:port, without what is added to requests
  source TEXT,
  run_id TEXT, workflow TEXT, step TEXT, step_key TEXT, attempt INTEGER,
  created_at REAL NOT NULL,
  stopped_at REAL,
  stopped_because TEXT
) STRICT;
CREATE INDEX sandboxes_by_time ON sandboxes (created_at, id);
CREATE INDEX sandboxes_by_run ON sandboxes (run_id, created_at, id) WHERE run_id IS NOT NULL;
CREATE INDEX sandboxes_live ON sandboxes (owner) WHERE stopped_at IS NULL;

CREATE TABLE commands (
  id TEXT PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  argv TEXT NOT NULL,                 -- JSON
  argv_cut INTEGER NOT NULL,          -- characters of the arguments that are not kept
  cwd TEXT NOT NULL,
  run_id TEXT, workflow TEXT, step TEXT, step_key TEXT, attempt INTEGER,
  started_at REAL NOT NULL,
  ended_at REAL,
  ended TEXT,                         -- exited, signalled, timed_out, …, process died
  exit_code INTEGER,
  signal INTEGER,
  seconds REAL,
  limits_hit TEXT NOT NULL DEFAULT '[]',
  stdout_bytes INTEGER NOT NULL DEFAULT 0,
  stderr_bytes INTEGER NOT NULL DEFAULT 0,
  stdout_tail TEXT NOT NULL DEFAULT '',
  stderr_tail TEXT NOT NULL DEFAULT '',
  stdout_cut INTEGER NOT NULL DEFAULT 0,
  stderr_cut INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX commands_by_time ON commands (started_at, id);
CREATE INDEX commands_by_sandbox ON commands (sandbox_id, started_at, id);
CREATE INDEX commands_by_run ON commands (run_id, step_key, started_at) WHERE run_id IS NOT NULL;
CREATE INDEX commands_running ON commands (owner) WHERE ended_at IS NULL;

CREATE TABLE egress (
  id INTEGER PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  run_id TEXT,
  at REAL NOT NULL,
  host TEXT NOT NULL,
  port INTEGER,
  allowed INTEGER NOT NULL,
  reason TEXT NOT NULL,
  address TEXT,
  sent INTEGER NOT NULL,
  received INTEGER NOT NULL
) STRICT;
CREATE INDEX egress_by_time ON egress (at);
CREATE INDEX egress_by_sandbox ON egress (sandbox_id, id);
CREATE INDEX egress_by_run ON egress (run_id, id) WHERE run_id IS NOT NULL;
