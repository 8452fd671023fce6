-- What the gateway keeps by name for a while: answers to be given again, conversations, and which
-- warnings were given. The gateway encrypts what nobody should read here.

CREATE TABLE kept (
  name text PRIMARY KEY,
  data bytea NOT NULL,
  expires_at double precision NOT NULL            -- seconds since 1970; later it is as if it were not there
);
CREATE INDEX kept_by_expiry ON kept (expires_at);
