-- How much of each provider's rate is left: requests and tokens a minute, for all processes that
-- share this store. Only providers with a configured rate have rows.

CREATE TABLE rates (
  name TEXT PRIMARY KEY,              -- the provider and what is counted: `openai requests`
  level REAL NOT NULL,                -- what may be used at once; below 0: taken by those who wait
  at REAL NOT NULL                    -- when that was so
) STRICT, WITHOUT ROWID;
