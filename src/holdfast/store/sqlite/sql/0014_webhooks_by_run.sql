-- Webhooks go with their run: found by it, not by looking at every webhook there is.

CREATE INDEX webhooks_by_run ON webhooks (run_id);
